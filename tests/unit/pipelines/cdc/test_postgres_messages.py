"""Messages that the driver keeps for the task that tells them."""

import struct
from pathlib import Path

import pytest

from mainstem.pipelines.cdc.postgres import message_spool
from mainstem.pipelines.cdc.postgres.message_spool import (
    MessageSpool,
    fetched_messages,
    spooled_messages,
)

HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER = b"\xff\xff"
SIGNALS = 77


def copied(*messages: tuple[int, bytes]) -> list[bytes]:
    """Messages as the server copies them out: header and trailer among the rows."""
    rows = [struct.pack(">hiQi", 2, 8, place, len(said)) + said for place, said in messages]
    return [HEADER + rows[0], *rows[1:], TRAILER] if rows else [HEADER, TRAILER]


BEGIN, END = b"B" + bytes(20), b"C" + bytes(25)
CHANGE = b"U" + b"row" * 10
SIGNAL = b"I" + SIGNALS.to_bytes(4, "big") + b"signal"
OTHER = b"I" + (SIGNALS + 1).to_bytes(4, "big") + b"other"
STREAM = [(1, BEGIN), (2, CHANGE), (3, SIGNAL), (4, OTHER), (5, END), (6, BEGIN), (7, CHANGE)]


def filled(folder: Path) -> MessageSpool:
    """A spool that has seen two transactions, the second of them in part."""
    spool = MessageSpool(folder)
    found = spool.fill(copied(*STREAM), SIGNALS)
    assert [(each.number, each.place, each.data) for each in found] == [(3, 3, SIGNAL), (5, 5, END)]
    return spool


def only_file(folder: Path) -> Path:
    [path] = (folder / "spool").glob("log-*")
    return path


def test_a_batch_is_read_as_the_server_told_it_and_no_further(tmp_path: Path) -> None:
    filled(tmp_path).keep(10, 20, 5)
    kept = spooled_messages(tmp_path, 10, 20)
    assert kept is not None
    assert list(kept) == STREAM[:5]
    assert list(fetched_messages(copied(*STREAM))) == STREAM


def test_messages_may_lie_across_the_bounds_of_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_spool, "READ_BYTES", 7)
    filled(tmp_path).keep(10, 20, 5)
    kept = spooled_messages(tmp_path, 10, 20)
    assert kept is not None
    assert list(kept) == STREAM[:5]


def test_another_batch_finds_nothing(tmp_path: Path) -> None:
    filled(tmp_path).keep(10, 20, 5)
    assert spooled_messages(tmp_path, 10, 21) is None
    assert spooled_messages(tmp_path, 9, 20) is None


@pytest.mark.parametrize("harm", ["cut", "flipped", "emptied"])
def test_a_file_that_was_harmed_is_as_good_as_none(tmp_path: Path, harm: str) -> None:
    filled(tmp_path).keep(10, 20, 5)
    path = only_file(tmp_path)
    whole = bytearray(path.read_bytes())
    if harm == "flipped":
        whole[len(whole) // 2] ^= 1
    path.write_bytes({"cut": bytes(whole[:-1]), "flipped": bytes(whole), "emptied": b""}[harm])
    assert spooled_messages(tmp_path, 10, 20) is None


def test_what_nobody_will_ask_for_is_removed(tmp_path: Path) -> None:
    spool = filled(tmp_path)
    spool.keep(10, 20, 5)
    spool.forget(19)
    assert only_file(tmp_path).exists()
    spool.forget(20)
    assert list((tmp_path / "spool").glob("log-*")) == []


def test_more_than_a_file_may_hold_is_left_to_the_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_spool, "FILE_BYTES_MAX", 50)
    filled(tmp_path).keep(10, 20, 5)
    assert spooled_messages(tmp_path, 10, 20) is None
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_server_that_tells_nothing_leaves_no_end(tmp_path: Path) -> None:
    assert MessageSpool(tmp_path).fill(copied(), SIGNALS) == []


def test_only_the_owner_may_read_what_is_kept(tmp_path: Path) -> None:
    filled(tmp_path).keep(10, 20, 5)
    assert only_file(tmp_path).stat().st_mode & 0o077 == 0
