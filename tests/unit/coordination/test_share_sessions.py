"""Share sessions: what a member reads here, and that no request is lost."""

import pytest

from mainstem.coordination.share.requests import AckRange, ShareAcknowledgeCall, ShareFetchCall
from mainstem.coordination.share.sessions import ShareSessions
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.ids import PartitionIndex, StreamId, TopicId

ONE = StreamId(TopicId(b"1" * 16), PartitionIndex(0))
OTHER = StreamId(TopicId(b"1" * 16), PartitionIndex(1))


def fetch(
    epoch: int,
    *named: StreamId,
    member: str = "m",
    forgotten: tuple[StreamId, ...] = (),
    connection: object = None,
) -> ShareFetchCall:
    return ShareFetchCall(
        group_id="g",
        member_id=member,
        session_epoch=epoch,
        named=named,
        forgotten=forgotten,
        connection=connection,
    )


def acknowledge(epoch: int) -> ShareAcknowledgeCall:
    return ShareAcknowledgeCall(group_id="g", member_id="m", session_epoch=epoch)


def test_partitions_join_and_leave_a_session() -> None:
    sessions = ShareSessions(10, 10)
    assert list(sessions.fetching(fetch(0, ONE)).streams) == [ONE]
    assert list(sessions.fetching(fetch(1, OTHER)).streams) == [ONE, OTHER]
    assert list(sessions.fetching(fetch(2, forgotten=(ONE,))).streams) == [OTHER]
    assert (sessions.is_read(("g", ONE)), sessions.is_read(("g", OTHER))) == (False, True)


def test_acknowledgements_count_as_requests_of_the_session() -> None:
    sessions = ShareSessions(10, 10)
    sessions.fetching(fetch(0, ONE))
    sessions.acknowledging(acknowledge(1))
    sessions.fetching(fetch(2))


def test_who_was_served_last_comes_last() -> None:
    session = ShareSessions(10, 10).fetching(fetch(0, ONE, OTHER))
    session.serve_last([ONE])
    assert list(session.streams) == [OTHER, ONE]


@pytest.mark.parametrize("epoch", [1, 3, -2])
def test_a_request_that_was_lost_or_comes_twice_is_noticed(epoch: int) -> None:
    sessions = ShareSessions(10, 10)
    sessions.fetching(fetch(0, ONE))
    sessions.fetching(fetch(1))
    with pytest.raises(MainstemError) as refusal:
        sessions.fetching(fetch(epoch))
    assert refusal.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH


@pytest.mark.parametrize("epoch", [1, -1])
def test_without_a_session_the_member_begins_anew(epoch: int) -> None:
    with pytest.raises(MainstemError) as refusal:
        ShareSessions(10, 10).fetching(fetch(epoch))
    assert refusal.value.code is ErrorCode.UNKNOWN_SHARE_SESSION


def test_a_session_begins_with_a_fetch_that_acknowledges_nothing() -> None:
    sessions = ShareSessions(10, 10)
    with pytest.raises(MainstemError) as refusal:
        sessions.acknowledging(acknowledge(0))
    assert refusal.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    wish = ShareFetchCall(
        group_id="g",
        member_id="m",
        session_epoch=0,
        named=(ONE,),
        acknowledgements={ONE: [AckRange(0, 1, (1,))]},
    )
    with pytest.raises(MainstemError):
        sessions.fetching(wish)


def test_there_is_a_limit_to_sessions_and_to_what_one_reads() -> None:
    sessions = ShareSessions(1, 1)
    sessions.fetching(fetch(0, ONE))
    sessions.fetching(fetch(0, ONE))  # the same member begins anew
    with pytest.raises(MainstemError) as refusal:
        sessions.fetching(fetch(0, ONE, member="n"))
    assert refusal.value.code is ErrorCode.SHARE_SESSION_LIMIT
    with pytest.raises(MainstemError):
        sessions.fetching(fetch(1, OTHER))


def test_sessions_are_found_by_their_connection_and_closed() -> None:
    sessions = ShareSessions(10, 10)
    session = sessions.fetching(fetch(0, ONE, connection="c"))
    assert sessions.of_connection("c") == [session]
    assert sessions.close("g", "m") is session
    assert (len(sessions), sessions.is_read(("g", ONE))) == (0, False)
    assert sessions.close("g", "m") is None
