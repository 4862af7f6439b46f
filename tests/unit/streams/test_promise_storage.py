"""Promises and doubts of a disk, kept over restarts."""

from pathlib import Path

import pytest

from mainstem.model.errors import Corrupt, ErrorCode, Unavailable
from mainstem.model.ids import Epoch, RangeIndex
from mainstem.streams.replica.promise_storage import LIMBO_NAME, NAME, NOTHING_PROMISED, Promise
from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault


def test_a_promise_is_found_again(tmp_path: Path) -> None:
    partition = tmp_path / "topics" / "t" / "partition-0"

    Promise(partition).store(Epoch(7))

    assert Promise(partition).epoch == 7


def test_nothing_was_promised_where_there_is_no_file(tmp_path: Path) -> None:
    assert Promise(tmp_path / "partition-0").epoch == NOTHING_PROMISED


def test_an_older_promise_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    promise = Promise(tmp_path)
    promise.store(Epoch(7))

    promise.store(Epoch(6))

    assert Promise(tmp_path).epoch == 7


@pytest.mark.parametrize("name", [NAME, LIMBO_NAME])
def test_a_damaged_file_is_not_taken_for_none(tmp_path: Path, name: str) -> None:
    promise = Promise(tmp_path)
    promise.store(Epoch(7))
    promise.set_limbo(RangeIndex(3), is_in_limbo=True)
    data = bytearray((tmp_path / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / name).write_bytes(data)

    with pytest.raises(Corrupt):
        Promise(tmp_path)


def test_limbo_is_kept_until_it_ends(tmp_path: Path) -> None:
    promise = Promise(tmp_path)
    promise.set_limbo(RangeIndex(3), is_in_limbo=True)
    promise.set_limbo(RangeIndex(5), is_in_limbo=True)
    promise.set_limbo(RangeIndex(3), is_in_limbo=False)

    assert Promise(tmp_path).limbo == {5}


def test_a_promise_that_cannot_be_read_now_is_refused_and_not_damaged(tmp_path: Path) -> None:
    partition = tmp_path / "partition-0"
    Promise(partition).store(Epoch(7))

    with FaultyFiles() as files:
        files.begin(partition, FileFault.NO_DESCRIPTORS)
        with pytest.raises(Unavailable) as refused:
            Promise(partition)

    assert refused.value.code is ErrorCode.OVERLOADED
    assert Promise(partition).epoch == 7
