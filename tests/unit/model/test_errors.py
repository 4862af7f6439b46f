"""Refusals of the house."""

import pickle

import pytest

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError, Unavailable


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
