"""The coordinator of transactions on an event loop: storage, markers, patience, restarts."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.kit.loop import virtual_time
from tests.kit.transactions import TIMEOUT_MS, A, T, TransactionNode, started_node

from mainstem.coordination.groups.requests import NO_OFFSET, CommitRequest, OffsetToCommit
from mainstem.coordination.transactions.requests import InitRequest, TransactionFilter
from mainstem.coordination.transactions.state import ProducerIdentity
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable

pytestmark = virtual_time

FULL = Unavailable(ErrorCode.DISK_FULL, "no space left")


@pytest.fixture
async def node() -> AsyncIterator[TransactionNode]:
    async with started_node() as node:
        yield node


def refused(code: ErrorCode) -> "pytest.RaisesExc[MainstemError]":
    return pytest.RaisesExc(MainstemError, check=lambda error: error.code is code)


async def moment() -> None:
    await asyncio.sleep(0.001)


@pytest.mark.parametrize("commit", [True, False])
async def test_an_end_marks_every_partition_and_is_completed(
    node: TransactionNode, *, commit: bool
) -> None:
    producer = await node.init()
    await node.add(producer, A, ("data", 1))

    after = await node.end(producer, commit=commit)
    await moment()

    expected = [(producer.producer_id, producer.epoch + 1, commit)]
    assert node.markers(A) == node.markers(("data", 1)) == expected
    assert node.state_of() == ("CompleteCommit" if commit else "CompleteAbort")
    await node.add(after, A)


async def test_no_marker_is_written_before_the_outcome_is_safe(node: TransactionNode) -> None:
    producer = await node.init()
    await node.add(producer, A)
    node.stream.is_synced = False

    ending = asyncio.create_task(node.end(producer))
    await moment()

    assert not ending.done()
    assert node.markers() == []
    node.stream.is_synced = True
    node.stream.commit()
    await ending
    await moment()
    assert len(node.markers()) == 1


async def test_a_partition_is_in_when_that_is_safe(node: TransactionNode) -> None:
    producer = await node.init()
    node.stream.is_synced = False

    adding = asyncio.create_task(node.add(producer, A))
    await moment()
    verifying = asyncio.create_task(
        node.transactions.add_partitions(T, *producer, [A], verify_only=True)
    )
    await moment()

    assert not adding.done()
    assert not verifying.done()
    node.stream.commit()
    await adding
    assert await verifying == [None]


async def test_a_transaction_that_ends_meanwhile_takes_no_partition(node: TransactionNode) -> None:
    producer = await node.init()
    await node.add(producer, A)
    node.stream.is_synced = False
    adding = asyncio.create_task(node.add(producer, ("data", 1)))
    await moment()
    verifying = asyncio.create_task(
        node.transactions.add_partitions(T, *producer, [A], verify_only=True)
    )
    await moment()
    ending = asyncio.create_task(node.end(producer))
    await moment()

    node.stream.is_synced = True
    node.stream.commit()

    for late in (verifying, adding):
        with pytest.raises(MainstemError):
            await late
    await ending


async def test_an_end_is_answered_when_every_marker_is_safe(node: TransactionNode) -> None:
    producer = await node.init()
    await node.add(producer, A)
    node.data[A].is_synced = False

    ending = asyncio.create_task(node.end(producer))
    await asyncio.sleep(0.5)

    assert not ending.done()
    node.data[A].is_synced = True
    node.data[A].commit()
    await ending
    assert node.state_of() == "CompleteCommit"


async def test_an_end_whose_marker_has_to_wait_is_answered_all_the_same(
    node: TransactionNode,
) -> None:
    producer = await node.init()
    await node.add(producer, A)
    node.data[A].is_synced = False

    await node.end(producer)

    assert node.state_of() == "PrepareCommit"


@pytest.mark.parametrize("repeats", [True, False])
async def test_who_comes_while_markers_are_written_waits_for_them(
    node: TransactionNode, *, repeats: bool
) -> None:
    producer = await node.init()
    await node.add(producer, A)
    node.data[A].is_synced = False
    after = await node.end(producer)

    act = node.end(producer) if repeats else node.add(after, A)
    waiting: asyncio.Task[ProducerIdentity | None] = asyncio.create_task(act)
    await asyncio.sleep(0.5)
    assert not waiting.done()
    node.data[A].is_synced = True
    node.data[A].commit()

    assert await waiting == (after if repeats else None)
    assert node.state_of() == ("CompleteCommit" if repeats else "Ongoing")


async def test_patience_has_an_end(node: TransactionNode) -> None:
    producer = await node.init()
    await node.add(producer, A)
    node.data[A].is_synced = False
    after = await node.end(producer)

    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await node.add(after, A)
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await node.init()


async def test_a_second_instance_waits_until_the_first_is_aborted(node: TransactionNode) -> None:
    first = await node.init()
    await node.add(first, A)

    second = await node.init()

    assert node.markers() == [(first.producer_id, first.epoch + 1, False)]
    assert second == (first.producer_id, first.epoch + 2)
    with refused(ErrorCode.FENCED_PRODUCER):
        await node.end(first)


async def test_a_marker_that_cannot_be_written_is_tried_again(node: TransactionNode) -> None:
    producer = await node.init()
    await node.add(producer, A, ("data", 1))
    node.data[A].refusal = FULL
    await node.end(producer)
    await asyncio.sleep(5)
    assert node.state_of() == "PrepareCommit"
    assert len(node.markers(("data", 1))) == 1

    node.data[A].refusal = None
    await asyncio.sleep(2)

    assert node.state_of() == "CompleteCommit"
    assert len(node.markers(A)) == len(node.markers(("data", 1))) == 1


async def test_a_topic_that_is_gone_needs_no_marker(node: TransactionNode) -> None:
    producer = await node.init()
    await node.add(producer, A)
    del node.data[A]

    await node.end(producer)
    await moment()

    assert node.state_of() == "CompleteCommit"


async def test_a_decision_that_cannot_be_stored_changes_nothing(node: TransactionNode) -> None:
    producer = await node.init()
    await node.add(producer, A)
    node.stream.refusal = FULL

    for act in (node.end(producer), node.add(producer, ("data", 1)), node.init()):
        with refused(ErrorCode.COORDINATOR_UNAVAILABLE):
            await act

    node.stream.refusal = None
    assert node.state_of() == "Ongoing"
    await node.end(producer)


async def test_a_completion_that_cannot_be_stored_is_tried_again(node: TransactionNode) -> None:
    producer = await node.init()
    await node.add(producer, A)
    node.data[A].is_synced = False
    await node.end(producer)
    await moment()
    node.stream.refusal = FULL
    node.data[A].commit()
    await asyncio.sleep(3)
    assert node.state_of() == "PrepareCommit"

    node.stream.refusal = None
    await asyncio.sleep(3)

    assert node.state_of() == "CompleteCommit"


async def test_a_restart_finishes_what_was_decided(node: TransactionNode) -> None:
    producer = await node.init()
    await node.add(producer, A)
    node.data[A].refusal = FULL
    await node.end(producer)
    await moment()

    await node.restart()
    node.data[A].refusal = None
    await asyncio.sleep(2)

    assert node.state_of() == "CompleteCommit"
    assert node.markers() == [(producer.producer_id, producer.epoch + 1, True)]


async def test_a_transaction_that_lasts_too_long_is_aborted_also_after_a_restart(
    node: TransactionNode,
) -> None:
    producer = await node.init()
    await node.add(producer, A)

    await asyncio.sleep(TIMEOUT_MS / 1000 - 5)
    await node.restart()
    assert node.state_of() == "Ongoing"
    await asyncio.sleep(7)

    assert node.state_of() == "CompleteAbort"
    with refused(ErrorCode.INVALID_TXN_STATE):
        await node.end(producer)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
async def test_positions_count_with_the_transaction(
    node: TransactionNode, *, commit: bool, restarts: bool
) -> None:
    producer = await node.init()
    await node.commit_offset(producer, 5)
    if restarts:
        await node.restart()
    assert await node.offset(stable=True) is ErrorCode.UNSTABLE_OFFSET
    assert await node.offset() == NO_OFFSET

    await node.end(producer, commit=commit)
    await moment()
    if restarts:
        await node.restart()

    assert await node.offset(stable=True) == (5 if commit else NO_OFFSET)


async def test_positions_of_an_older_client_need_the_group_to_be_added(
    node: TransactionNode,
) -> None:
    producer = await node.init()
    request = CommitRequest(group_id="g", offsets=(OffsetToCommit("data", 0, 5),))

    async def commit() -> list[ErrorCode | None]:
        return await node.transactions.commit_offsets(T, producer, request, verify_only=True)

    with refused(ErrorCode.TRANSACTION_ABORTABLE):
        await commit()
    await node.transactions.add_offsets(T, *producer, "g")
    assert await commit() == [None]


async def test_an_older_client_learns_which_partitions_are_missing(node: TransactionNode) -> None:
    producer = await node.init()
    await node.add(producer, A)

    answer = await node.transactions.add_partitions(
        T, *producer, [A, ("data", 1)], verify_only=True
    )

    assert answer == [None, ErrorCode.TRANSACTION_ABORTABLE]


async def test_only_a_transaction_that_nobody_knows_is_hanging(node: TransactionNode) -> None:
    producer = await node.init()
    await node.add(producer, A)

    with refused(ErrorCode.INVALID_TXN_STATE):
        await node.transactions.abort_hanging(A, producer, 0)
    await node.transactions.abort_hanging(A, ProducerIdentity(7, 1), 0)

    assert node.markers() == [(7, 1, False)]


async def test_an_id_that_nobody_has_is_unknown(node: TransactionNode) -> None:
    with refused(ErrorCode.UNKNOWN_TRANSACTION):
        node.transactions.describe(T)
    with refused(ErrorCode.INVALID_PRODUCER_MAPPING):
        await node.end(ProducerIdentity(1, 0))
    with refused(ErrorCode.INVALID_REQUEST):
        await node.transactions.init(InitRequest(transactional_id="", timeout_ms=1))
    assert node.transactions.list(TransactionFilter()) == []


async def test_after_the_stop_everybody_is_sent_away(node: TransactionNode) -> None:
    producer = await node.init()
    await node.add(producer, A)
    node.data[A].is_synced = False
    after = await node.end(producer)
    waiting = asyncio.create_task(node.add(after, A))
    await moment()

    node.stop()

    with refused(ErrorCode.COORDINATOR_UNAVAILABLE):
        await waiting
    with refused(ErrorCode.COORDINATOR_UNAVAILABLE):
        await node.init()


async def test_a_prepared_transaction_is_committed_by_a_later_incarnation(
    node: TransactionNode,
) -> None:
    first = await node.init(two_phase=True)
    await node.add(first, A)
    await asyncio.sleep(3_600)
    await node.restart()

    found = await node.transactions.init(
        InitRequest(transactional_id=T, timeout_ms=1, two_phase=True, keep_prepared=True)
    )
    assert found.ongoing == first
    await node.end(found.producer)
    await moment()

    assert node.markers() == [(first.producer_id, first.epoch + 1, True)]
