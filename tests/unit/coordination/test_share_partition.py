"""One partition as a share group reads it: who has which record, and what is stored."""

import pytest

from mainstem.coordination.share.partition import (
    AcquireLimit,
    ReadBatch,
    SavedRecordRun,
    SavedSharePartition,
    SharePartition,
    SharePartitionLimits,
)
from mainstem.coordination.share.record_window import ShareRecordState
from mainstem.coordination.share.requests import AckRange, AckType, AcquiredRange
from mainstem.model.errors import ErrorCode, InvalidRequest

RULES = SharePartitionLimits(lock_duration_ms=100, delivery_limit=2, locks_max=10)
ACCEPT, RELEASE, REJECT, RENEW = AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.RENEW


def take(
    share: SharePartition, member: str, batches: list[ReadBatch], records: int = 100, **more: object
) -> list[AcquiredRange]:
    now_ms = more.pop("now_ms", 0)
    assert isinstance(now_ms, int)
    portion = AcquireLimit(records=records, **more)  # type: ignore[arg-type]
    return share.acquire(member, batches, portion, RULES, now_ms)


def acknowledge(share: SharePartition, member: str, start: int, until: int, *types: int) -> None:
    share.acknowledge(member, [AckRange(start, until, types)], RULES, 0)


def test_two_members_never_have_the_same_record() -> None:
    share = SharePartition(0)
    batches = [ReadBatch(0, 4), ReadBatch(4, 8)]
    assert take(share, "a", batches, records=4) == [AcquiredRange(0, 4, 1)]
    assert take(share, "b", batches) == [AcquiredRange(4, 8, 1)]
    assert take(share, "c", batches) == []


def test_start_moves_over_what_is_done_and_not_further() -> None:
    share = SharePartition(0)
    take(share, "a", [ReadBatch(0, 6)])
    acknowledge(share, "a", 2, 4, ACCEPT)
    assert share.start == 0
    acknowledge(share, "a", 0, 2, ACCEPT, REJECT)
    assert (share.start, share.until) == (4, 6)


def test_what_is_released_is_given_to_others_until_the_limit() -> None:
    share = SharePartition(0)
    batches = [ReadBatch(0, 2)]
    take(share, "a", batches)
    acknowledge(share, "a", 0, 2, RELEASE)
    assert take(share, "b", batches) == [AcquiredRange(0, 2, 2)]
    acknowledge(share, "b", 0, 2, RELEASE)
    assert (share.start, share.acquired) == (2, 0)


def test_a_lock_that_is_renewed_lasts_longer() -> None:
    share = SharePartition(0)
    take(share, "a", [ReadBatch(0, 2)])
    share.acknowledge("a", [AckRange(0, 1, (RENEW,))], RULES, 60)
    assert share.next_deadline_ms() == 100
    share.expire(RULES, 100)
    assert [(run.start, run.state) for run in share.window] == [
        (0, ShareRecordState.ACQUIRED),
        (1, ShareRecordState.AVAILABLE),
    ]
    assert share.next_deadline_ms() == 160


def test_where_locks_are_not_renewed_such_an_acknowledgement_is_refused() -> None:
    share = SharePartition(0)
    take(share, "a", [ReadBatch(0, 2)])
    rules = SharePartitionLimits(renews=False)
    with pytest.raises(InvalidRequest):
        share.acknowledge("a", [AckRange(0, 2, (RENEW,))], rules, 0)


@pytest.mark.parametrize(
    ("member", "start", "until"), [("b", 0, 2), ("a", 0, 3), ("a", 3, 5)], ids=str
)
def test_who_does_not_have_a_record_cannot_settle_it(member: str, start: int, until: int) -> None:
    share = SharePartition(0)
    take(share, "a", [ReadBatch(0, 2)])
    take(share, "b", [ReadBatch(2, 3)])
    before = share.saved()
    with pytest.raises(InvalidRequest) as refusal:
        acknowledge(share, member, start, until, ACCEPT)
    assert refusal.value.code is ErrorCode.INVALID_RECORD_STATE
    assert share.saved() == before


@pytest.mark.parametrize(
    "ranges",
    [
        [AckRange(0, 2, (ACCEPT, ACCEPT, ACCEPT))],
        [AckRange(0, 2, (9,))],
        [AckRange(2, 2, (ACCEPT,))],
        [AckRange(1, 2, (ACCEPT,)), AckRange(0, 1, (ACCEPT,))],
    ],
    ids=["types", "type", "empty", "order"],
)
def test_acknowledgements_that_make_no_sense_are_refused(ranges: list[AckRange]) -> None:
    share = SharePartition(0)
    take(share, "a", [ReadBatch(0, 4)])
    with pytest.raises(InvalidRequest) as refusal:
        share.acknowledge("a", ranges, RULES, 0)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert share.acquired == 4


def test_an_acknowledgement_that_comes_twice_does_no_harm() -> None:
    share = SharePartition(0)
    take(share, "a", [ReadBatch(0, 2)])
    acknowledge(share, "a", 0, 2, ACCEPT)
    acknowledge(share, "a", 0, 2, ACCEPT)
    assert share.start == 2


def test_a_full_window_gives_out_nothing_until_its_front_is_done() -> None:
    share = SharePartition(0)
    batches = [ReadBatch(at, at + 5) for at in range(0, 20, 5)]
    assert take(share, "a", batches) == [AcquiredRange(0, 10, 1)]
    assert share.next_offset(RULES.locks_max) is None
    acknowledge(share, "a", 5, 10, ACCEPT)
    assert share.next_offset(RULES.locks_max) is None
    acknowledge(share, "a", 0, 5, ACCEPT)
    assert share.next_offset(RULES.locks_max) == 10


def test_whole_batches_are_given_out_unless_the_member_is_strict() -> None:
    batches = [ReadBatch(0, 5), ReadBatch(5, 10)]
    assert take(SharePartition(0), "a", batches, records=3) == [AcquiredRange(0, 5, 1)]
    assert take(SharePartition(0), "a", batches, records=3, strict=True) == [AcquiredRange(0, 3, 1)]


def test_ranges_are_cut_where_members_want_them() -> None:
    batches = [ReadBatch(at, at + 2) for at in range(0, 10, 2)]
    assert take(SharePartition(0), "a", batches, batch_size=3) == [
        AcquiredRange(0, 4, 1),
        AcquiredRange(4, 8, 1),
        AcquiredRange(8, 10, 1),
    ]


def test_what_nobody_may_see_is_passed_over() -> None:
    share = SharePartition(0)
    batches = [ReadBatch(0, 2, is_dead=True), ReadBatch(5, 7), ReadBatch(7, 8, is_dead=True)]
    assert take(share, "a", batches) == [AcquiredRange(5, 7, 1)]
    assert share.start == 5
    acknowledge(share, "a", 5, 7, ACCEPT)
    assert share.start == 8


def test_a_trimmed_log_takes_what_nobody_has() -> None:
    share = SharePartition(0)
    take(share, "a", [ReadBatch(0, 2)])
    take(share, "b", [ReadBatch(2, 6)])
    share.release("b", RULES)
    share.trim(4)
    assert share.next_offset(RULES.locks_max) == 4
    acknowledge(share, "a", 0, 2, RELEASE)
    assert share.start == 4


def test_what_was_in_delivery_is_available_after_a_restart() -> None:
    share = SharePartition(0)
    take(share, "a", [ReadBatch(0, 6)])
    acknowledge(share, "a", 2, 4, ACCEPT)
    saved = share.saved()
    assert saved == SavedSharePartition(
        0,
        (
            SavedRecordRun(2, ShareRecordState.AVAILABLE, 1),
            SavedRecordRun(2, ShareRecordState.ACKNOWLEDGED, 0),
            SavedRecordRun(2, ShareRecordState.AVAILABLE, 1),
        ),
    )
    assert saved.done == 2
    again = SharePartition.restored(saved, RULES.delivery_limit)
    assert take(again, "b", [ReadBatch(0, 6)]) == [AcquiredRange(0, 2, 2), AcquiredRange(4, 6, 2)]


def test_of_records_that_the_log_has_lost_nothing_is_known() -> None:
    saved = SavedSharePartition(
        2,
        (
            SavedRecordRun(2, ShareRecordState.AVAILABLE, 1),
            SavedRecordRun(4, ShareRecordState.ACKNOWLEDGED, 0),
        ),
    )
    share = SharePartition.restored(saved, RULES.delivery_limit, log_end=3)
    assert (share.start, share.until) == (2, 3)
    assert take(share, "a", [ReadBatch(2, 6)]) == [AcquiredRange(2, 3, 2), AcquiredRange(3, 6, 1)]
    assert SharePartition.restored(saved, RULES.delivery_limit, log_end=1).start == 1


def test_a_restart_does_not_exceed_the_limit_of_deliveries() -> None:
    saved = SavedSharePartition(0, (SavedRecordRun(1, ShareRecordState.AVAILABLE, 5),))
    share = SharePartition.restored(saved, RULES.delivery_limit)
    assert take(share, "a", [ReadBatch(0, 1)]) == [AcquiredRange(0, 1, 2)]
