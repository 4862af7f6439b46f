"""Stories of fetch sessions (KIP-227)."""

import itertools

import pytest

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.protocols.kafka.fetch_sessions import FetchSessions
from mainstem.wire.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)


def request(session_id: int, epoch: int, offsets: dict[int, int]) -> FetchRequest:
    parts = [FetchPartition(partition=p, fetch_offset=o) for p, o in offsets.items()]
    topics = [FetchTopic(topic="t", partitions=parts)] if parts else []
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics)


def sessions(limit: int = 10) -> FetchSessions:
    return FetchSessions(itertools.count(100).__next__, limit)


def test_a_client_that_wants_no_session_gets_none() -> None:
    session, incremental = sessions().resolve(request(0, -1, {0: 5}))

    assert session.id == 0
    assert not incremental


def test_later_requests_name_only_what_changes() -> None:
    held = sessions()
    session, _ = held.resolve(request(0, 0, {0: 5, 1: 7}))

    again, incremental = held.resolve(request(session.id, 1, {1: 9}))

    assert incremental
    assert {key[2]: wanted.offset for key, wanted in again.wanted.items()} == {0: 5, 1: 9}


def test_a_forgotten_partition_is_read_no_more() -> None:
    held = sessions()
    session, _ = held.resolve(request(0, 0, {0: 5, 1: 7}))
    change = request(session.id, 1, {})
    change.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[0])]

    again, _ = held.resolve(change)

    assert [key[2] for key in again.wanted] == [1]


def test_a_session_out_of_step_is_refused() -> None:
    held = sessions()
    session, _ = held.resolve(request(0, 0, {0: 5}))

    with pytest.raises(InvalidRequest) as caught:
        held.resolve(request(session.id, 3, {}))
    assert caught.value.code is ErrorCode.INVALID_FETCH_EPOCH


def test_an_unknown_session_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        sessions().resolve(request(9, 1, {}))
    assert caught.value.code is ErrorCode.UNKNOWN_FETCH_SESSION


def test_the_least_recently_used_session_gives_way() -> None:
    held = sessions(limit=2)
    first, _ = held.resolve(request(0, 0, {0: 0}))
    second, _ = held.resolve(request(0, 0, {0: 0}))
    held.resolve(request(first.id, 1, {}))

    held.resolve(request(0, 0, {0: 0}))

    assert len(held) == 2
    held.resolve(request(first.id, 2, {}))
    with pytest.raises(InvalidRequest):
        held.resolve(request(second.id, 1, {}))


def test_those_that_got_data_stand_behind_the_others_next_time() -> None:
    held = sessions()
    session, _ = held.resolve(request(0, 0, {0: 0, 1: 0, 2: 0}))

    session.serve_last([next(iter(session.wanted))])

    assert [key[2] for key in session.wanted] == [1, 2, 0]


def test_the_final_epoch_ends_a_session() -> None:
    held = sessions()
    session, _ = held.resolve(request(0, 0, {0: 0}))

    held.resolve(request(session.id, -1, {0: 0}))

    assert len(held) == 0
