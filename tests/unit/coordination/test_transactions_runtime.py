"""The coordinator of transactions on an event loop: storage, markers, patience, restarts."""

import asyncio

import pytest
from tests.unit.coordination.transaction_house import TIMEOUT_MS, A, House, T, play

from mainstem.coordination.requests import NO_OFFSET, CommitRequest, OffsetToCommit
from mainstem.coordination.transaction import ProducerIdentity
from mainstem.coordination.transaction_requests import InitRequest, TransactionFilter
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable

FULL = Unavailable(ErrorCode.DISK_FULL, "no space left")


def refused(code: ErrorCode) -> "pytest.RaisesExc[MainstemError]":
    return pytest.RaisesExc(MainstemError, check=lambda error: error.code is code)


async def moment() -> None:
    await asyncio.sleep(0.001)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_marks_every_partition_and_is_completed(*, commit: bool) -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A, ("data", 1))

        after = await house.end(producer, commit=commit)
        await moment()

        expected = [(producer.producer_id, producer.epoch + 1, commit)]
        assert house.markers(A) == house.markers(("data", 1)) == expected
        assert house.state_of() == ("CompleteCommit" if commit else "CompleteAbort")
        await house.add(after, A)

    play(story)


def test_no_marker_is_written_before_the_outcome_is_safe() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A)
        house.stream.is_synced = False

        ending = asyncio.create_task(house.end(producer))
        await moment()

        assert not ending.done()
        assert house.markers() == []
        house.stream.is_synced = True
        house.stream.commit()
        await ending
        await moment()
        assert len(house.markers()) == 1

    play(story)


def test_a_partition_is_in_when_that_is_safe() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        house.stream.is_synced = False

        adding = asyncio.create_task(house.add(producer, A))
        await moment()
        verifying = asyncio.create_task(
            house.transactions.add_partitions(T, *producer, [A], verify_only=True)
        )
        await moment()

        assert not adding.done()
        assert not verifying.done()
        house.stream.commit()
        await adding
        assert await verifying == [None]

    play(story)


def test_a_transaction_that_ends_meanwhile_takes_no_partition() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A)
        house.stream.is_synced = False
        adding = asyncio.create_task(house.add(producer, ("data", 1)))
        await moment()
        verifying = asyncio.create_task(
            house.transactions.add_partitions(T, *producer, [A], verify_only=True)
        )
        await moment()
        ending = asyncio.create_task(house.end(producer))
        await moment()

        house.stream.is_synced = True
        house.stream.commit()

        for late in (verifying, adding):
            with pytest.raises(MainstemError):
                await late
        await ending

    play(story)


def test_an_end_is_answered_when_every_marker_is_safe() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A)
        house.data[A].is_synced = False

        ending = asyncio.create_task(house.end(producer))
        await asyncio.sleep(0.5)

        assert not ending.done()
        house.data[A].is_synced = True
        house.data[A].commit()
        await ending
        assert house.state_of() == "CompleteCommit"

    play(story)


def test_an_end_whose_marker_has_to_wait_is_answered_all_the_same() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A)
        house.data[A].is_synced = False

        await house.end(producer)

        assert house.state_of() == "PrepareCommit"

    play(story)


@pytest.mark.parametrize("repeats", [True, False])
def test_who_comes_while_markers_are_written_waits_for_them(*, repeats: bool) -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A)
        house.data[A].is_synced = False
        after = await house.end(producer)

        act = house.end(producer) if repeats else house.add(after, A)
        waiting: asyncio.Task[ProducerIdentity | None] = asyncio.create_task(act)
        await asyncio.sleep(0.5)
        assert not waiting.done()
        house.data[A].is_synced = True
        house.data[A].commit()

        assert await waiting == (after if repeats else None)
        assert house.state_of() == ("CompleteCommit" if repeats else "Ongoing")

    play(story)


def test_patience_has_an_end() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A)
        house.data[A].is_synced = False
        after = await house.end(producer)

        with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
            await house.add(after, A)
        with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
            await house.init()

    play(story)


def test_a_second_instance_waits_until_the_first_is_aborted() -> None:
    async def story(house: House) -> None:
        first = await house.init()
        await house.add(first, A)

        second = await house.init()

        assert house.markers() == [(first.producer_id, first.epoch + 1, False)]
        assert second == (first.producer_id, first.epoch + 2)
        with refused(ErrorCode.FENCED_PRODUCER):
            await house.end(first)

    play(story)


def test_a_marker_that_cannot_be_written_is_tried_again() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A, ("data", 1))
        house.data[A].refusal = FULL
        await house.end(producer)
        await asyncio.sleep(5)
        assert house.state_of() == "PrepareCommit"
        assert len(house.markers(("data", 1))) == 1

        house.data[A].refusal = None
        await asyncio.sleep(2)

        assert house.state_of() == "CompleteCommit"
        assert len(house.markers(A)) == len(house.markers(("data", 1))) == 1

    play(story)


def test_a_topic_that_is_gone_needs_no_marker() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A)
        del house.data[A]

        await house.end(producer)
        await moment()

        assert house.state_of() == "CompleteCommit"

    play(story)


def test_a_decision_that_cannot_be_stored_changes_nothing() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A)
        house.stream.refusal = FULL

        for act in (house.end(producer), house.add(producer, ("data", 1)), house.init()):
            with refused(ErrorCode.COORDINATOR_UNAVAILABLE):
                await act

        house.stream.refusal = None
        assert house.state_of() == "Ongoing"
        await house.end(producer)

    play(story)


def test_a_completion_that_cannot_be_stored_is_tried_again() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A)
        house.data[A].is_synced = False
        await house.end(producer)
        await moment()
        house.stream.refusal = FULL
        house.data[A].commit()
        await asyncio.sleep(3)
        assert house.state_of() == "PrepareCommit"

        house.stream.refusal = None
        await asyncio.sleep(3)

        assert house.state_of() == "CompleteCommit"

    play(story)


def test_a_restart_finishes_what_was_decided() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A)
        house.data[A].refusal = FULL
        await house.end(producer)
        await moment()

        await house.restart()
        house.data[A].refusal = None
        await asyncio.sleep(2)

        assert house.state_of() == "CompleteCommit"
        assert house.markers() == [(producer.producer_id, producer.epoch + 1, True)]

    play(story)


def test_a_transaction_that_lasts_too_long_is_aborted_also_after_a_restart() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A)

        await asyncio.sleep(TIMEOUT_MS / 1000 - 5)
        await house.restart()
        assert house.state_of() == "Ongoing"
        await asyncio.sleep(7)

        assert house.state_of() == "CompleteAbort"
        with refused(ErrorCode.INVALID_TXN_STATE):
            await house.end(producer)

    play(story)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_positions_count_with_the_transaction(*, commit: bool, restarts: bool) -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.commit_offset(producer, 5)
        if restarts:
            await house.restart()
        assert await house.offset(stable=True) is ErrorCode.UNSTABLE_OFFSET
        assert await house.offset() == NO_OFFSET

        await house.end(producer, commit=commit)
        await moment()
        if restarts:
            await house.restart()

        assert await house.offset(stable=True) == (5 if commit else NO_OFFSET)

    play(story)


def test_positions_of_an_older_client_need_the_group_to_be_added() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        request = CommitRequest(group_id="g", offsets=(OffsetToCommit("data", 0, 5),))

        async def commit() -> list[ErrorCode | None]:
            return await house.transactions.commit_offsets(T, producer, request, verify_only=True)

        with refused(ErrorCode.TRANSACTION_ABORTABLE):
            await commit()
        await house.transactions.add_offsets(T, *producer, "g")
        assert await commit() == [None]

    play(story)


def test_an_older_client_learns_which_partitions_are_missing() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A)

        answer = await house.transactions.add_partitions(
            T, *producer, [A, ("data", 1)], verify_only=True
        )

        assert answer == [None, ErrorCode.TRANSACTION_ABORTABLE]

    play(story)


def test_only_a_transaction_that_nobody_knows_is_hanging() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A)

        with refused(ErrorCode.INVALID_TXN_STATE):
            await house.transactions.abort_hanging(A, producer, 0)
        await house.transactions.abort_hanging(A, ProducerIdentity(7, 1), 0)

        assert house.markers() == [(7, 1, False)]

    play(story)


def test_an_id_that_nobody_has_is_unknown() -> None:
    async def story(house: House) -> None:
        with refused(ErrorCode.UNKNOWN_TRANSACTION):
            house.transactions.describe(T)
        with refused(ErrorCode.INVALID_PRODUCER_MAPPING):
            await house.end(ProducerIdentity(1, 0))
        with refused(ErrorCode.INVALID_REQUEST):
            await house.transactions.init(InitRequest(transactional_id="", timeout_ms=1))
        assert house.transactions.list(TransactionFilter()) == []

    play(story)


def test_after_the_stop_everybody_is_sent_away() -> None:
    async def story(house: House) -> None:
        producer = await house.init()
        await house.add(producer, A)
        house.data[A].is_synced = False
        after = await house.end(producer)
        waiting = asyncio.create_task(house.add(after, A))
        await moment()

        house.stop()

        with refused(ErrorCode.COORDINATOR_UNAVAILABLE):
            await waiting
        with refused(ErrorCode.COORDINATOR_UNAVAILABLE):
            await house.init()

    play(story)


def test_a_prepared_transaction_is_committed_by_a_later_incarnation() -> None:
    async def story(house: House) -> None:
        first = await house.init(two_phase=True)
        await house.add(first, A)
        await asyncio.sleep(3_600)
        await house.restart()

        found = await house.transactions.init(
            InitRequest(transactional_id=T, timeout_ms=1, two_phase=True, keep_prepared=True)
        )
        assert found.ongoing == first
        await house.end(found.producer)
        await moment()

        assert house.markers() == [(first.producer_id, first.epoch + 1, True)]

    play(story)
