import pytest
from tests.unit.queues.building import NOW, STREAM, given, offer, pointers, queue_of, reader

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import PartitionIndex, StreamId
from mainstem.model.limits import DELIVERIES_PER_TURN_MAX
from mainstem.queues.engine.consumer_window import ConsumerWindow
from mainstem.queues.engine.consumers import Consumer
from mainstem.queues.engine.effects import ActiveChanged, LeaseLost
from mainstem.queues.engine.queue_machine import Queue
from mainstem.queues.engine.settling import (
    ACKNOWLEDGE,
    REJECT,
    RELEASE,
    RETURN,
    Settlement,
    SettlementOutcome,
)
from mainstem.queues.facts import ONLY_LANE, Pointer, RemovalReason, Returned, Settled
from mainstem.queues.settings import DeliveryMode, Overflow, QueueSettings


def test_consumers_take_turns() -> None:
    queue = queue_of()
    queue.on_consume(reader("a"), NOW)
    queue.on_consume(reader("b"), NOW)

    effects = offer(queue, 1, 2, 3, 4)

    assert given(effects) == [("a", 1), ("b", 2), ("a", 3), ("b", 4)]


def test_a_backlog_goes_to_whoever_comes() -> None:
    queue = queue_of()
    offer(queue, 1, 2)

    effects = queue.on_consume(reader("a"), NOW)

    assert given(effects) == [("a", 1), ("a", 2)]


def test_nothing_is_sent_when_nobody_listens() -> None:
    queue = queue_of()

    effects = offer(queue, 1)

    assert not effects.deliveries
    assert queue.body.ready_count == 1


def test_a_window_bounds_what_a_consumer_has() -> None:
    queue = queue_of()
    queue.on_consume(reader("a", window=2), NOW)

    first = offer(queue, 1, 2, 3)
    second = queue.on_settled("a", [first.deliveries[1].number], ACKNOWLEDGE, NOW)

    assert given(first) == [("a", 1), ("a", 2)]
    assert given(second) == [("a", 3)]


def test_a_window_of_bytes_lets_one_large_message_through() -> None:
    queue = queue_of()
    queue.on_consume(Consumer("a", ConsumerWindow(bytes_max=15)), NOW)

    effects = queue.on_offered(STREAM, pointers(1, 2, 3, size_bytes=100), NOW)

    assert given(effects) == [("a", 1)]


def test_credit_is_used_up_by_deliveries_and_granted_anew() -> None:
    queue = queue_of()
    window = ConsumerWindow(credit=1)
    queue.on_consume(Consumer("a", window), NOW)
    first = offer(queue, 1, 2)
    settled = queue.on_settled("a", [first.deliveries[0].number], ACKNOWLEDGE, NOW)

    window.credit = 5
    granted = queue.on_window("a", NOW)

    assert given(first) == [("a", 1)]
    assert not settled.deliveries
    assert given(granted) == [("a", 2)]


def test_consumers_of_a_channel_share_a_window() -> None:
    shared = ConsumerWindow(1)
    one, two = queue_of(), queue_of()
    one.on_consume(Consumer("a", ConsumerWindow(), shared=shared), NOW)
    two.on_consume(Consumer("b", ConsumerWindow(), shared=shared), NOW)
    first = offer(one, 1)

    second = offer(two, 2)
    one.on_settled("a", [first.deliveries[0].number], ACKNOWLEDGE, NOW)
    third = two.on_window("b", NOW)

    assert (given(first), given(second), given(third)) == ([("a", 1)], [], [("b", 2)])


def test_a_message_of_a_lost_consumer_goes_to_the_next_one() -> None:
    queue = queue_of()
    queue.on_consume(reader("a"), NOW)
    queue.on_consume(reader("b"), NOW)
    [delivery] = offer(queue, 1).deliveries

    [again] = queue.on_gone("a", NOW).deliveries

    assert (delivery.consumer, delivery.attempt, delivery.redelivered) == ("a", 1, False)
    assert (again.consumer, again.attempt, again.redelivered) == ("b", 2, True)
    assert again.failures == 0, "losing a consumer is no failure of the message"


def test_returned_messages_come_back_in_their_place() -> None:
    queue = queue_of()
    queue.on_consume(reader("a", window=3), NOW)
    taken = offer(queue, 1, 2, 3, 4, 5).deliveries

    queue.on_settled("a", [taken[1].number], ACKNOWLEDGE, NOW)
    queue.on_gone("a", NOW)
    effects = queue.on_consume(reader("b"), NOW)

    assert given(effects) == [("b", 1), ("b", 3), ("b", 4), ("b", 5)]


def test_a_cancelled_consumer_keeps_what_it_has_and_may_settle_it() -> None:
    queue = queue_of()
    queue.on_consume(reader("a"), NOW)
    [delivery] = offer(queue, 1).deliveries
    queue.on_cancelled("a", NOW)

    later = offer(queue, 2)
    effects = queue.on_settled("a", [delivery.number], ACKNOWLEDGE, NOW)

    assert not later.deliveries
    assert effects.facts == [Settled(0, ONLY_LANE, ((0, 1),))]


def test_an_acknowledgement_of_many_is_one_fact() -> None:
    queue = queue_of()
    queue.on_consume(reader("a"), NOW)
    taken = offer(queue, 1, 2, 3, 4).deliveries

    effects = queue.on_settled("a", [taken[2].number], ACKNOWLEDGE, NOW, multiple=True)

    assert effects.facts == [Settled(0, ONLY_LANE, ((0, 3),))]
    assert effects.count == 3
    assert len(queue.body.ledger) == 1


def test_what_is_not_held_cannot_be_settled() -> None:
    queue = queue_of()
    queue.on_consume(reader("a"), NOW)
    [delivery] = offer(queue, 1).deliveries

    stranger = queue.on_settled("b", [delivery.number], ACKNOWLEDGE, NOW)
    queue.on_settled("a", [delivery.number], ACKNOWLEDGE, NOW)
    twice = queue.on_settled("a", [delivery.number], ACKNOWLEDGE, NOW)

    assert stranger.unknown == [delivery.number]
    assert twice.unknown == [delivery.number]


def test_urgent_messages_come_first_and_stay_in_order() -> None:
    queue = queue_of(max_priority=2)
    for offset, priority in ((1, 0), (2, 2), (3, 1), (4, 2), (5, 9)):
        offer(queue, offset, priority=priority)

    effects = queue.on_consume(reader("a"), NOW)

    assert [offset for _, offset in given(effects)] == [2, 4, 5, 3, 1]


def test_a_queue_of_priorities_tells_four_apart() -> None:
    queue = queue_of(mode=DeliveryMode.PRIORITY)
    for offset, priority in ((1, 0), (2, 1), (3, 2), (4, 3), (5, 7)):
        offer(queue, offset, priority=priority)

    effects = queue.on_consume(reader("a"), NOW)

    assert [offset for _, offset in given(effects)] == [4, 5, 3, 2, 1]


def test_urgent_consumers_are_served_first_while_they_have_room() -> None:
    queue = queue_of()
    queue.on_consume(reader("slow"), NOW)
    queue.on_consume(reader("fast", window=2, priority=10), NOW)

    effects = offer(queue, 1, 2, 3)

    assert given(effects) == [("fast", 1), ("fast", 2), ("slow", 3)]


def test_one_active_consumer_gets_all_and_hands_over() -> None:
    queue = queue_of(single_active=True)
    came = queue.on_consume(reader("a", window=1), NOW)
    queue.on_consume(reader("b"), NOW)
    first = offer(queue, 1, 2)

    gone = queue.on_gone("a", NOW)

    assert came.notices == [ActiveChanged(0, "a")]
    assert given(first) == [("a", 1)]
    assert gone.notices == [ActiveChanged(0, "b")]
    assert given(gone) == [("b", 1), ("b", 2)]


def test_a_more_urgent_consumer_takes_over_once_nothing_is_in_flight() -> None:
    queue = queue_of(single_active=True)
    queue.on_consume(reader("a", window=1), NOW)
    [delivery] = offer(queue, 1, 2).deliveries

    came = queue.on_consume(reader("b", priority=1), NOW)
    settled = queue.on_settled("a", [delivery.number], ACKNOWLEDGE, NOW)

    assert not came.deliveries
    assert given(settled) == [("b", 2)]


def test_an_exclusive_consumer_is_alone() -> None:
    queue = queue_of()
    queue.on_consume(reader("a"), NOW, is_exclusive=True)

    with pytest.raises(InvalidRequest) as refused:
        queue.on_consume(reader("b"), NOW)
    queue.on_cancelled("a", NOW)
    queue.on_consume(reader("b"), NOW)
    with pytest.raises(InvalidRequest):
        queue.on_consume(reader("c"), NOW, is_exclusive=True)

    assert refused.value.code is ErrorCode.RESOURCE_IN_USE


def test_a_name_of_a_consumer_is_used_once() -> None:
    queue = queue_of()
    queue.on_consume(reader("a"), NOW)

    with pytest.raises(InvalidRequest):
        queue.on_consume(reader("a"), NOW)


def test_one_message_can_be_asked_for() -> None:
    queue = queue_of()
    offer(queue, 1, 2)

    found = queue.on_get("session", NOW)
    none_left = queue.on_get("session", NOW, no_ack=True)
    empty = queue.on_get("session", NOW)

    assert (given(found), found.count) == ([("session", 1)], 1)
    assert (given(none_left), none_left.count) == ([("session", 2)], 0)
    assert not empty.deliveries
    assert len(queue.body.ledger) == 1, "the first one is not settled yet"


def test_a_failing_message_waits_longer_each_time_and_dies() -> None:
    queue = queue_of(retry_ms=2_000, max_attempts=3, dead_letter_exchange="dlx")
    queue.on_consume(reader("a"), NOW)
    [delivery] = offer(queue, 1).deliveries

    now_ms, waits = NOW, []
    for _ in range(2):
        queue.on_settled("a", [delivery.number], RETURN, now_ms)
        due_ms = queue.next_ms()
        assert due_ms is not None
        waits.append(due_ms - now_ms)
        now_ms = due_ms
        [delivery] = queue.on_time(now_ms).deliveries
    last = queue.on_settled("a", [delivery.number], RETURN, now_ms)

    assert waits == [2_000, 4_000]
    assert (delivery.attempt, delivery.failures) == (3, 2)
    [letter] = last.dead_letters
    assert (letter.reason, letter.failures) == (RemovalReason.ATTEMPTS, 2)


@pytest.mark.parametrize(
    ("failures", "wait_ms"), [(1, 2_000), (2, 4_000), (6, 64_000), (7, 120_000), (500, 120_000)]
)
def test_back_off_doubles_up_to_two_minutes(failures: int, wait_ms: int) -> None:
    assert queue_of(retry_ms=2_000).body.settings.retry_delay_ms(failures) == wait_ms


def test_a_consumer_may_say_how_long_a_message_waits() -> None:
    queue = queue_of()
    queue.on_consume(reader("a"), NOW)
    [delivery] = offer(queue, 1).deliveries

    later = Settlement(SettlementOutcome.RETURN, is_failure=True, delay_ms=700)
    effects = queue.on_settled("a", [delivery.number], later, NOW)

    assert not effects.deliveries
    assert queue.next_ms() == NOW + 700


def test_a_message_that_kills_its_consumers_ends_where_that_is_limited() -> None:
    queue = queue_of(max_acquired=2, dead_letter_exchange="dlx")
    offer(queue, 1)
    for name in "ab":
        queue.on_consume(reader(name), NOW)
        effects = queue.on_gone(name, NOW)

    assert [letter.reason for letter in effects.dead_letters] == [RemovalReason.ATTEMPTS]


def test_a_lease_runs_out_and_somebody_else_gets_the_message() -> None:
    queue = queue_of(lease_ms=30_000)
    queue.on_consume(reader("a", window=1), NOW)
    [delivery] = offer(queue, 1).deliveries
    queue.on_consume(reader("b", window=1), NOW)

    early = queue.on_time(NOW + 29_999)
    late = queue.on_time(NOW + 30_000)
    too_late = queue.on_settled("a", [delivery.number], ACKNOWLEDGE, NOW + 30_001)

    assert not early.deliveries
    assert late.notices == [LeaseLost(0, "a", delivery.number)]
    assert given(late) == [("b", 1)]
    assert too_late.unknown == [delivery.number]


def test_a_lease_that_ran_out_is_a_failure() -> None:
    queue = queue_of(lease_ms=100, max_attempts=2, dead_letter_exchange="dlx")
    queue.on_consume(reader("a", window=1), NOW)
    offer(queue, 1)

    [again] = queue.on_time(NOW + 100).deliveries
    effects = queue.on_time(NOW + 200)

    assert (again.attempt, again.failures) == (2, 1)
    assert [letter.reason for letter in effects.dead_letters] == [RemovalReason.ATTEMPTS]


def test_a_failure_is_recorded_also_where_the_message_does_not_wait() -> None:
    queue = queue_of()
    queue.on_consume(reader("a"), NOW)
    [delivery] = offer(queue, 1).deliveries

    effects = queue.on_settled("a", [delivery.number], RETURN, NOW)

    assert effects.facts[0] == Returned(0, ONLY_LANE, ((0, 1),), is_failure=True, visible_ms=0)
    assert effects.deliveries[0].failures == 1


def test_a_message_may_wait_without_having_failed() -> None:
    queue = queue_of()
    queue.on_consume(reader("a"), NOW)
    [delivery] = offer(queue, 1).deliveries

    queue.on_settled("a", [delivery.number], Settlement(SettlementOutcome.RETURN, delay_ms=70), NOW)
    [again] = queue.on_time(NOW + 70).deliveries

    assert (again.attempt, again.failures) == (2, 0)


def test_a_rejected_message_dies_with_the_reason_that_was_given() -> None:
    queue = queue_of(dead_letter_exchange="dlx")
    queue.on_consume(reader("a"), NOW)
    [delivery] = offer(queue, 1).deliveries

    bad = Settlement(SettlementOutcome.REJECT, reason=RemovalReason.BAD_PAYLOAD)
    effects = queue.on_settled("a", [delivery.number], bad, NOW)
    again = queue.on_consume(reader("b"), NOW)
    buried = queue.on_dead_lettered(ONLY_LANE, [effects.dead_letters[0].sequence], NOW)

    assert [letter.reason for letter in effects.dead_letters] == [RemovalReason.BAD_PAYLOAD]
    assert not again.deliveries, "who is condemned is not delivered again"
    assert buried.facts == [Settled(0, ONLY_LANE, ((0, 1),), RemovalReason.BAD_PAYLOAD)]


def test_a_rejected_message_without_an_exchange_is_dropped_and_counted() -> None:
    queue = queue_of()
    queue.on_consume(reader("a"), NOW)
    [delivery] = offer(queue, 1).deliveries

    effects = queue.on_settled("a", [delivery.number], REJECT, NOW)

    [dropped] = effects.dropped
    assert (dropped.reason, dropped.messages, dropped.size_bytes) == (RemovalReason.REJECTED, 1, 10)
    assert len(queue.body.ledger) == 0


def test_messages_expire_also_in_the_middle() -> None:
    queue = queue_of(dead_letter_exchange="dlx")
    offer(queue, 1)
    queue.on_offered(STREAM, (Pointer(2, 10, expires_ms=NOW + 50),), NOW)
    offer(queue, 3)

    effects = queue.on_time(NOW + 50)

    assert [(each.pointer.offset, each.reason) for each in effects.dead_letters] == [
        (2, RemovalReason.EXPIRED)
    ]
    assert queue.body.ready_count == 2


def test_the_shorter_of_two_lives_counts() -> None:
    queue = queue_of(message_ttl_ms=100)
    queue.on_offered(STREAM, (Pointer(1, 1, expires_ms=NOW + 50), Pointer(2, 1)), NOW)

    first = queue.next_ms()
    queue.on_time(NOW + 50)

    assert (first, queue.next_ms()) == (NOW + 50, NOW + 100)


def test_a_life_of_nothing_still_reaches_a_consumer_that_is_there() -> None:
    queue = queue_of(message_ttl_ms=0)
    dropped = offer(queue, 1)
    queue.on_consume(reader("a"), NOW)

    effects = offer(queue, 2)

    assert [each.reason for each in dropped.dropped] == [RemovalReason.EXPIRED]
    assert given(effects) == [("a", 2)]


def test_what_a_consumer_has_does_not_expire_until_it_comes_back() -> None:
    queue = queue_of(message_ttl_ms=100)
    queue.on_consume(reader("a"), NOW)
    [delivery] = offer(queue, 1).deliveries

    later = queue.on_time(NOW + 500)
    back = queue.on_settled("a", [delivery.number], RELEASE, NOW + 500)

    assert not later.dropped
    assert [each.reason for each in back.dropped] == [RemovalReason.EXPIRED]


def test_a_delayed_message_is_not_seen_before_its_time() -> None:
    queue = queue_of()
    queue.on_consume(reader("a"), NOW)

    early = queue.on_offered(STREAM, (Pointer(1, 10, visible_ms=NOW + 300),), NOW)
    offer(queue, 2)
    due = queue.on_time(NOW + 300)

    assert not early.deliveries
    assert given(due) == [("a", 1)]


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({"max_length": 2}, [3, 4]),
        ({"max_length_bytes": 25}, [3, 4]),
        ({"max_length": 3, "max_length_bytes": 10}, [4]),
        ({"max_length": 0}, []),
    ],
)
def test_a_full_queue_drops_its_oldest_messages(settings: dict[str, int], left: list[int]) -> None:
    queue = queue_of(**settings)

    effects = offer(queue, 1, 2, 3, 4)

    assert sum(each.messages for each in effects.dropped) == 4 - len(left)
    assert {each.reason for each in effects.dropped} == {RemovalReason.OVERFLOW}
    assert [offset for _, offset in given(queue.on_consume(reader("a"), NOW))] == left


def test_a_full_queue_drops_the_least_urgent_first() -> None:
    queue = queue_of(max_length=2, max_priority=1, dead_letter_exchange="dlx")
    offer(queue, 1, priority=1)
    offer(queue, 2)

    effects = offer(queue, 3, priority=1)

    assert [each.pointer.offset for each in effects.dead_letters] == [2]


def test_messages_in_hands_do_not_count_against_the_length() -> None:
    queue = queue_of(max_length=1)
    queue.on_consume(reader("a", window=1), NOW)
    offer(queue, 1)

    effects = offer(queue, 2)

    assert not effects.dropped


def test_a_purge_takes_what_is_in_nobodys_hands() -> None:
    queue = queue_of(dead_letter_exchange="dlx")
    queue.on_consume(reader("a", window=1), NOW)
    offer(queue, 1, 2, 3)

    effects = queue.on_purged(NOW)

    assert effects.count == 2
    assert not effects.dead_letters
    assert len(queue.body.ledger) == 1


def test_a_turn_is_bounded_and_goes_on() -> None:
    queue = queue_of()
    offer(queue, *range(1, DELIVERIES_PER_TURN_MAX + 6))

    first = queue.on_consume(reader("a"), NOW)
    due_ms = queue.next_ms()
    second = queue.on_time(NOW)

    assert (len(first.deliveries), len(second.deliveries)) == (DELIVERIES_PER_TURN_MAX, 5)
    assert due_ms == 0
    assert queue.next_ms() is None


def test_messages_that_come_twice_are_taken_once() -> None:
    queue = queue_of()
    offer(queue, 1, 2, 3)

    again = offer(queue, 2, 3, 4)

    assert again.count == 1
    assert len(queue.body.ledger) == 4


def test_a_queue_of_memory_leaves_no_facts() -> None:
    queue = queue_of(durable=False)
    queue.on_consume(reader("a"), NOW)

    effects = offer(queue, 1)
    settled = queue.on_settled("a", [effects.deliveries[0].number], ACKNOWLEDGE, NOW)

    assert not effects.facts
    assert not settled.facts
    assert len(queue.body.ledger) == 0


def fan_out(**settings: object) -> Queue:
    return queue_of(mode=DeliveryMode.FANOUT_WITH_ACK, **settings)


def test_a_fan_out_keeps_a_message_until_all_have_acknowledged() -> None:
    queue = fan_out()
    queue.on_consume(reader("a"), NOW)
    queue.on_consume(reader("b"), NOW)
    taken = offer(queue, 1).deliveries

    queue.on_settled("a", [taken[0].number], ACKNOWLEDGE, NOW)
    half = len(queue.body.ledger)
    queue.on_settled("b", [taken[1].number], ACKNOWLEDGE, NOW)

    assert [each.consumer for each in taken] == ["a", "b"]
    assert (half, len(queue.body.ledger)) == (1, 0)


def test_a_fan_out_waits_for_a_named_subscriber_that_is_away() -> None:
    queue = fan_out()
    queue.on_consume(reader("c1"), NOW, subscriber="billing")
    queue.on_gone("c1", NOW)
    offer(queue, 1)
    queue.on_time(NOW + 10**9)

    effects = queue.on_consume(reader("c2"), NOW + 10**9, subscriber="billing")

    assert given(effects) == [("c2", 1)]


def test_an_unnamed_subscriber_counts_no_longer_after_half_a_minute() -> None:
    queue = fan_out()
    queue.on_consume(reader("a"), NOW)
    queue.on_consume(reader("b"), NOW)
    taken = offer(queue, 1).deliveries
    queue.on_settled("a", [taken[0].number], ACKNOWLEDGE, NOW)

    queue.on_gone("b", NOW)
    waits = len(queue.body.ledger)
    due_ms = queue.next_ms()
    queue.on_time(NOW + 30_000)

    assert (waits, due_ms) == (1, NOW + 30_000)
    assert len(queue.body.ledger) == 0


def test_what_nobody_took_waits_for_the_next_subscriber() -> None:
    queue = fan_out()
    queue.on_consume(reader("a"), NOW)
    offer(queue, 1)
    queue.on_gone("a", NOW)
    queue.on_time(NOW + 30_000)

    effects = queue.on_consume(reader("b"), NOW + 30_000)

    assert given(effects) == [("b", 1)]


def test_without_acknowledgement_a_message_goes_once_to_each_who_is_there() -> None:
    queue = queue_of(mode=DeliveryMode.FANOUT)
    offer(queue, 1)
    queue.on_consume(reader("a"), NOW)
    queue.on_consume(reader("b"), NOW)

    effects = offer(queue, 2)

    assert given(effects) == [("a", 2), ("b", 2)]
    assert len(queue.body.ledger) == 0


def test_messages_of_a_fan_out_expire_where_nobody_subscribes() -> None:
    queue = fan_out(message_ttl_ms=100, dead_letter_exchange="dlx")
    offer(queue, 1)

    effects = queue.on_time(NOW + 100)

    assert [letter.reason for letter in effects.dead_letters] == [RemovalReason.EXPIRED]


def test_a_copy_that_expires_goes_for_its_subscriber_only() -> None:
    queue = fan_out(message_ttl_ms=100)
    queue.on_consume(reader("a"), NOW)
    queue.on_consume(reader("b", window=1), NOW)
    offer(queue, 1, 2)

    effects = queue.on_time(NOW + 100)

    assert sum(each.messages for each in effects.dropped) == 1
    assert len(queue.body.ledger) == 2


def test_a_fan_out_has_no_single_messages_to_ask_for() -> None:
    with pytest.raises(InvalidRequest):
        fan_out().on_get("session", NOW)


def test_pressure_drops_the_oldest_but_never_from_queues_that_refuse() -> None:
    dropping, refusing = queue_of(), queue_of(overflow=Overflow.REJECT_PUBLISH, max_length=10)
    for queue in (dropping, refusing):
        offer(queue, 1, 2, 3)
        queue.on_pressure(2, NOW)

    assert (len(dropping.body.ledger), len(refusing.body.ledger)) == (1, 3)


def test_bodies_are_needed_from_the_oldest_message_on() -> None:
    queue = queue_of()
    queue.on_consume(reader("a", window=2), NOW)
    taken = offer(queue, 4, 7, 9).deliveries
    queue.on_settled("a", [taken[0].number], ACKNOWLEDGE, NOW)

    assert queue.body.ledger.oldest_offsets() == {STREAM: 7}


def test_a_limit_that_was_lowered_takes_turns() -> None:
    queue = queue_of(dead_letter_exchange="dlx")
    offer(queue, *range(1, DELIVERIES_PER_TURN_MAX + 11))

    first = queue.on_changed(QueueSettings(max_length=5, dead_letter_exchange="dlx"), NOW)
    due_ms = queue.next_ms()
    second = queue.on_time(NOW)

    assert (len(first.dead_letters), len(second.dead_letters)) == (DELIVERIES_PER_TURN_MAX, 5)
    assert (due_ms, queue.next_ms()) == (0, None)


def test_a_message_that_its_last_subscriber_left_still_expires() -> None:
    queue = fan_out(message_ttl_ms=60_000)
    queue.on_consume(reader("a", window=1), NOW)
    offer(queue, 1, 2)
    queue.on_gone("a", NOW)
    queue.on_time(NOW + 30_000)

    effects = queue.on_time(NOW + 60_000)

    assert sum(each.messages for each in effects.dropped) == 2
    assert len(queue.body.ledger) == 0


def test_bodies_that_only_one_queue_needs_can_be_moved() -> None:
    queue = queue_of()
    offer(queue, 4, 7)
    elsewhere = StreamId(STREAM.topic, PartitionIndex(9))

    queue.on_moved(elsewhere, {0: 100}, NOW)
    again = offer(queue, 4, 7)
    effects = queue.on_consume(reader("a"), NOW)

    found = [(each.stream, each.pointer.offset) for each in effects.deliveries]
    assert found == [(elsewhere, 100), (STREAM, 7)]
    assert again.count == 0
    assert queue.body.ledger.oldest_offsets() == {elsewhere: 100, STREAM: 7}
