"""Positions that wait for the outcome of a transaction."""

from collections.abc import Sequence

import pytest
from tests.kit.simulation.coordination.group_simulator import GroupSimulator

from mainstem.coordination.groups.facts import OffsetRemoved
from mainstem.coordination.groups.requests import (
    NO_OFFSET,
    CommitRequest,
    FetchedOffset,
    JoinRequest,
    OffsetToCommit,
)
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.groups.shard import GroupShard
from mainstem.coordination.offsets.pending import (
    GROUP_CODEC,
    GroupFact,
    OffsetPending,
    TransactionEnded,
)
from mainstem.coordination.shards.fact_log import batches, facts_in
from mainstem.coordination.shards.state_machine import Instant
from mainstem.coordination.transactions.state import ProducerIdentity
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.records.batch import NO_SEQUENCE, read_header

NOW = Instant(0, 1_700_000_000_000)
P = ProducerIdentity(7, 3)
Q = ProducerIdentity(8, 0)
WEEK_MS = 7 * 24 * 60 * 60 * 1_000


@pytest.fixture
def shard() -> GroupShard:
    return GroupSimulator(GroupSettings()).shard


def asked(offset: int, **rest: object) -> CommitRequest:
    return CommitRequest(group_id="g", offsets=(OffsetToCommit("t", 0, offset),), **rest)  # type: ignore[arg-type]


def replay(shard: GroupShard, facts: Sequence[GroupFact]) -> None:
    for fact in facts:
        shard.replay(fact)


def commit(shard: GroupShard, offset: int, producer: ProducerIdentity | None = None) -> None:
    if producer is None:
        replay(shard, shard.commit(asked(offset), NOW)[1])
    else:
        replay(shard, shard.commit_in_transaction(asked(offset), producer, NOW)[1])


def end(shard: GroupShard, producer: ProducerIdentity = P, *, commit: bool = True) -> None:
    shard.replay(TransactionEnded(producer, commit))


def fetch(shard: GroupShard, *, stable: bool = False) -> FetchedOffset:
    [found] = shard.offsets.fetch("g", [("t", 0)], stable=stable)
    return found


def test_a_position_counts_when_its_transaction_commits(shard: GroupShard) -> None:
    commit(shard, 5, P)
    assert fetch(shard).committed.offset == NO_OFFSET

    end(shard)

    assert fetch(shard, stable=True).committed.offset == 5


def test_a_position_never_counts_when_its_transaction_aborts(shard: GroupShard) -> None:
    commit(shard, 1)
    commit(shard, 5, P)

    end(shard, commit=False)

    assert fetch(shard, stable=True).committed.offset == 1


def test_a_stable_answer_is_refused_while_the_outcome_is_open(shard: GroupShard) -> None:
    commit(shard, 1)
    commit(shard, 5, P)

    assert fetch(shard, stable=True).outcome is ErrorCode.UNSTABLE_OFFSET
    assert fetch(shard).committed.offset == 1


def test_the_last_position_of_a_transaction_counts(shard: GroupShard) -> None:
    commit(shard, 5, P)
    commit(shard, 6, P)

    end(shard)

    assert fetch(shard).committed.offset == 6


def test_a_plain_position_stored_later_is_not_overwritten(shard: GroupShard) -> None:
    commit(shard, 5, P)
    commit(shard, 9)
    assert fetch(shard, stable=True).outcome is ErrorCode.UNSTABLE_OFFSET

    end(shard)

    assert fetch(shard, stable=True).committed.offset == 9


@pytest.mark.parametrize("first", [P, Q])
def test_of_two_transactions_the_position_stored_last_wins(
    shard: GroupShard, first: ProducerIdentity
) -> None:
    commit(shard, 5, P)
    commit(shard, 6, Q)

    end(shard, first)
    assert fetch(shard, stable=True).outcome is ErrorCode.UNSTABLE_OFFSET
    end(shard, Q if first is P else P)

    assert fetch(shard, stable=True).committed.offset == 6


def test_a_marker_for_nothing_changes_nothing(shard: GroupShard) -> None:
    commit(shard, 1)

    end(shard)

    assert fetch(shard, stable=True).committed.offset == 1


def test_a_deleted_group_does_not_come_back_with_the_marker(shard: GroupShard) -> None:
    commit(shard, 5, P)

    replay(shard, shard.delete_group("g"))
    end(shard)

    assert fetch(shard).committed.offset == NO_OFFSET


def test_positions_in_a_deleted_topic_do_not_come_back_with_the_marker(shard: GroupShard) -> None:
    commit(shard, 5, P)

    facts = shard.offsets.delete_topic("t")
    assert facts == [OffsetRemoved("g", "t", 0)]
    replay(shard, facts)
    end(shard)

    assert fetch(shard).committed.offset == NO_OFFSET


def test_nothing_expires_while_a_transaction_may_still_move_it(shard: GroupShard) -> None:
    commit(shard, 1)
    commit(shard, 5, P)

    assert shard.expire(NOW.wall_ms + WEEK_MS) == []
    end(shard, commit=False)

    assert shard.expire(NOW.wall_ms + WEEK_MS)


def test_members_are_checked_if_the_producer_names_one(shard: GroupShard) -> None:
    shard.groups.join(
        JoinRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", b""),),
        ),
        1,
        NOW,
    )

    with pytest.raises(MainstemError) as refusal:
        shard.commit_in_transaction(asked(5, generation=1, member_id="unknown"), P, NOW)
    assert refusal.value.code is ErrorCode.UNKNOWN_MEMBER
    outcomes, facts = shard.commit_in_transaction(asked(5), P, NOW)
    assert outcomes == [None]
    assert len(facts) == 1


def test_a_generation_that_nobody_knows_is_refused(shard: GroupShard) -> None:
    with pytest.raises(MainstemError) as refusal:
        shard.commit_in_transaction(asked(5, generation=1, member_id="m"), P, NOW)

    assert refusal.value.code is ErrorCode.ILLEGAL_GENERATION


def test_pending_positions_are_stored_in_batches_of_their_producer(shard: GroupShard) -> None:
    _, facts = shard.commit_in_transaction(asked(5), P, NOW)

    [(_, batch)] = batches(facts, NOW.wall_ms, GROUP_CODEC)

    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*P, NO_SEQUENCE)
    assert header.is_transactional
    [(_, found)] = facts_in(bytes(batch), GROUP_CODEC)
    assert found == facts
    assert isinstance(found[0], OffsetPending)
