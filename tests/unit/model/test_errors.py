"""Refusals of the house."""

import logging
import pickle

import pytest

from mainstem.model.errors import (
    Corrupt,
    ErrorCode,
    InvalidRequest,
    MainstemError,
    StorageMayRefuse,
    Unavailable,
)


@pytest.mark.parametrize(
    "refusal",
    [
        InvalidRequest(ErrorCode.INVALID_REQUEST, "no", subject="t-0", remedy="ask otherwise"),
        Unavailable(ErrorCode.DISK_FULL, "no space left"),
        Corrupt("bytes are missing", subject="a file"),
    ],
)
def test_a_refusal_goes_from_process_to_process(refusal: MainstemError) -> None:
    arrived = pickle.loads(pickle.dumps(refusal))
    assert type(arrived) is type(refusal)
    assert str(arrived) == str(refusal)
    assert arrived.code is refusal.code
    assert arrived.retriable == refusal.retriable


def test_a_refusal_that_storage_recovers_from_is_logged_and_passes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with StorageMayRefuse(logging.getLogger(__name__), "it is done later") as storage:
        raise Unavailable(ErrorCode.DISK_FULL, "no space left", subject="a file")
    assert storage.refusal is not None
    assert caplog.messages == ["it is done later: DISK_FULL [a file]: no space left"]


def test_a_step_that_succeeds_leaves_no_refusal(caplog: pytest.LogCaptureFixture) -> None:
    with StorageMayRefuse(logging.getLogger(__name__), "it is done later") as storage:
        pass
    assert storage.refusal is None
    assert caplog.messages == []


@pytest.mark.parametrize(
    "error", [Unavailable(ErrorCode.STORAGE_FAILED), Corrupt("damaged"), OSError("raw")]
)
def test_no_other_failure_passes(error: Exception) -> None:
    with pytest.raises(type(error)), StorageMayRefuse(logging.getLogger(__name__), "later"):
        raise error
