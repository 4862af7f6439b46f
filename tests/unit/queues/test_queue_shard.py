import gc

import pytest
from tests.unit.queues.building import NOW, STREAM, named, offer, pointers, reader, shard_of

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.queues.admission.watermarks import Pressure, Watermarks
from mainstem.queues.declaration import OnDifference
from mainstem.queues.engine.effects import ConsumerCancelled, QueueEffects, QueueGone
from mainstem.queues.engine.queue_machine import Queue
from mainstem.queues.engine.settling import ACKNOWLEDGE, REJECT
from mainstem.queues.engine.shard import ITEM_BYTES, QueueShard
from mainstem.queues.facts import (
    QueueDeclared,
    QueueDeleted,
    QueueFact,
    QueuesCounted,
    RemovalReason,
)
from mainstem.queues.settings import Overflow, QueueSettings
from mainstem.queues.storage.queue_state import QueueStateTable


def rebuilt(facts: list[QueueFact]) -> QueueShard:
    state = QueueStateTable()
    for fact in facts:
        state.replay(fact)
    return QueueShard(state, Watermarks(10**9), NOW)


def test_a_queue_is_declared_once() -> None:
    shard = shard_of()

    first, effects = shard.on_declare(named("q"), QueueSettings(), NOW)
    second, again = shard.on_declare(named("q"), QueueSettings(), NOW)

    assert effects.facts == [QueueDeclared(0, named("q"), QueueSettings())]
    assert (first.is_new, second.is_new, second.queue) == (True, False, first.queue)
    assert not again.facts


def test_namespaces_keep_queues_apart() -> None:
    shard = shard_of()
    shard.on_declare(named("q", "one"), QueueSettings(), NOW)
    shard.on_declare(named("q", "two"), QueueSettings(max_length=1), NOW)

    assert len(shard) == 2


def test_a_declaration_that_differs_names_the_argument() -> None:
    shard = shard_of()
    shard.on_declare(named("q"), QueueSettings(message_ttl_ms=1_000), NOW)

    with pytest.raises(InvalidRequest) as refused:
        shard.on_declare(named("q"), QueueSettings(), NOW)

    assert refused.value.code is ErrorCode.DECLARATION_DIFFERS
    assert "'x-message-ttl': received none but current is the value '1000'" in refused.value.cause


def test_settings_that_may_change_are_overridden_and_last() -> None:
    shard = shard_of()
    _, made = shard.on_declare(named("q"), QueueSettings(), NOW)
    shorter = QueueSettings(max_length=1)
    _, queue = shard.need(named("q"))
    added = offer(queue, 1, 2, 3)

    _, changed = shard.on_declare(named("q"), shorter, NOW, policy=OnDifference.OVERRIDE)
    again = rebuilt([*made.facts, *added.facts, *changed.facts])

    assert [each.messages for each in changed.dropped] == [2]
    assert again.need(named("q"))[1].body.settings == shorter
    assert again.need(named("q"))[1].body.ready_count == 1


def test_an_exclusive_queue_is_its_connections() -> None:
    shard = shard_of()
    shard.on_declare(named("q"), QueueSettings(exclusive=True), NOW, connection="c1")

    with pytest.raises(InvalidRequest) as refused:
        shard.need(named("q"), "c2")
    effects = shard.on_connection_gone("c1", NOW)

    assert refused.value.code is ErrorCode.RESOURCE_LOCKED
    assert not effects.facts, "what is in memory only leaves no trace"
    assert len(shard) == 0


def test_a_queue_that_deletes_itself_goes_with_its_last_consumer() -> None:
    shard = shard_of()
    declared, _ = shard.on_declare(named("q"), QueueSettings(auto_delete=True), NOW)
    _, queue = shard.need(named("q"))
    shard.after(declared.queue, offer(queue, 1), NOW)
    still = len(shard)
    shard.after(declared.queue, queue.on_consume(reader("a"), NOW), NOW)

    effects = shard.after(declared.queue, queue.on_gone("a", NOW), NOW)

    assert (still, len(shard)) == (1, 0)
    assert effects.facts[-1] == QueueDeleted(declared.queue)


def test_an_unused_queue_expires_and_use_puts_that_off() -> None:
    shard = shard_of()
    declared, _ = shard.on_declare(named("q"), QueueSettings(expires_ms=1_000), NOW)
    _, queue = shard.need(named("q"))

    shard.after(declared.queue, queue.on_get("s", NOW + 500), NOW + 500)
    early = shard.on_time(NOW + 1_000)
    late = shard.on_time(NOW + 1_500)

    assert not early.facts
    assert late.facts == [QueueDeleted(declared.queue)]


def test_a_queue_with_a_consumer_does_not_expire() -> None:
    shard = shard_of()
    declared, _ = shard.on_declare(named("q"), QueueSettings(expires_ms=1_000), NOW)
    _, queue = shard.need(named("q"))
    shard.after(declared.queue, queue.on_consume(reader("a"), NOW), NOW)

    shard.on_time(NOW + 5_000)

    assert len(shard) == 1


def test_a_deleted_queue_takes_its_consumers_and_messages_with_it() -> None:
    shard = shard_of()
    declared, _ = shard.on_declare(named("q"), QueueSettings(), NOW)
    _, queue = shard.need(named("q"))
    queue.on_consume(reader("a", window=1), NOW)
    offer(queue, 1, 2, 3)

    effects = shard.on_delete(named("q"), NOW)

    assert effects.count == 2
    assert effects.notices == [
        ConsumerCancelled(declared.queue, "a"),
        QueueGone(declared.queue, named("q")),
    ]
    with pytest.raises(InvalidRequest) as gone:
        shard.need(named("q"))
    assert gone.value.code is ErrorCode.UNKNOWN_QUEUE


@pytest.mark.parametrize(
    ("is_unused", "code"),
    [(True, ErrorCode.RESOURCE_IN_USE), (False, ErrorCode.QUEUE_NOT_EMPTY)],
)
def test_a_queue_in_use_or_with_messages_stays_where_that_is_asked_for(
    is_unused: bool, code: ErrorCode
) -> None:
    shard = shard_of()
    shard.on_declare(named("q"), QueueSettings(), NOW)
    _, queue = shard.need(named("q"))
    queue.on_consume(reader("a", window=1), NOW)
    offer(queue, 1, 2)

    with pytest.raises(InvalidRequest) as refused:
        shard.on_delete(named("q"), NOW, if_unused=is_unused, if_empty=not is_unused)

    assert refused.value.code is code


def test_a_number_of_a_queue_is_never_used_again() -> None:
    shard = shard_of()
    first, made = shard.on_declare(named("q"), QueueSettings(), NOW)
    gone = shard.on_delete(named("q"), NOW)
    facts = [*made.facts, *gone.facts]
    trimmed = list(rebuilt(facts).snapshot())

    second, _ = rebuilt(trimmed).on_declare(named("q"), QueueSettings(), NOW)

    assert trimmed == [QueuesCounted(1)]
    assert second.queue == first.queue + 1


def test_after_kill_9_all_that_was_not_acknowledged_is_there_in_order() -> None:
    shard = shard_of()
    _, made = shard.on_declare(named("q"), QueueSettings(), NOW)
    _, queue = shard.need(named("q"))
    steps = [queue.on_consume(reader("a", window=3), NOW), offer(queue, 1, 2, 3, 4, 5)]
    taken = steps[1].deliveries
    from_queue = queue.on_settled("a", [taken[1].number], ACKNOWLEDGE, NOW)
    facts = [*made.facts, *(fact for step in [*steps, from_queue] for fact in step.facts)]

    again = rebuilt(facts)
    recovered = again.on_recovered(NOW)
    _, queue = again.need(named("q"))
    effects = queue.on_consume(reader("b"), NOW)

    assert not recovered.deliveries
    found = [(each.pointer.offset, each.redelivered) for each in effects.deliveries]
    assert found == [(1, True), (3, True), (4, True), (5, False)]


def test_dead_letters_on_their_way_are_sent_again_after_a_crash() -> None:
    shard = shard_of()
    _, made = shard.on_declare(named("q"), QueueSettings(dead_letter_exchange="dlx"), NOW)
    _, queue = shard.need(named("q"))
    queue.on_consume(reader("a"), NOW)
    added = offer(queue, 1)
    rejected = queue.on_settled("a", [added.deliveries[0].number], REJECT, NOW)

    again = rebuilt([*made.facts, *added.facts, *rejected.facts])
    effects = again.on_recovered(NOW)

    assert effects.dead_letters == rejected.dead_letters


def test_ten_thousand_reply_queues_leave_nothing_behind() -> None:
    shard = shard_of()
    for number in range(10_000):
        name = named(f"amq.gen-{number}")
        settings = QueueSettings(exclusive=True, auto_delete=True)
        declared, effects = shard.on_declare(name, settings, NOW, connection=f"c{number % 7}")
        assert not effects.facts
        shard.after(declared.queue, offer(shard.need(name, f"c{number % 7}")[1], 1), NOW)

    for number in range(7):
        shard.on_connection_gone(f"c{number}", NOW)

    assert len(shard) == 0
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is Queue and each.body.id > 9_000]


def test_memory_that_runs_out_slows_refuses_and_drops_from_the_largest() -> None:
    shard = shard_of(memory_bytes_max=100 * ITEM_BYTES)
    seen = []
    for name, overflow in (("small", Overflow.DROP_HEAD), ("large", Overflow.DROP_HEAD)):
        shard.on_declare(named(name), QueueSettings(overflow=overflow), NOW)
    effects = QueueEffects()
    for name, count in (("small", 10), ("large", 70), ("large", 10), ("large", 6)):
        number, queue = shard.need(named(name))
        start = queue.body.ledger.next_sequence
        offered = queue.on_offered(STREAM, pointers(*range(start, start + count)), NOW)
        effects = shard.after(number, offered, NOW)
        seen.append(shard.pressure)

    assert seen[:3] == [Pressure.ACCEPT, Pressure.SLOW, Pressure.REFUSE]
    assert [(each.queue, each.reason) for each in effects.dropped] == [(1, RemovalReason.OVERFLOW)]
    assert shard.pressure < Pressure.OVERFLOW
    assert shard.need(named("small"))[1].body.ready_count == 10


def test_a_snapshot_that_was_cut_short_does_not_count_and_spoils_none() -> None:
    shard = shard_of()
    _, made = shard.on_declare(named("q"), QueueSettings(), NOW)
    _, queue = shard.need(named("q"))
    early = list(shard.snapshot())
    added = offer(queue, 1, 2)
    whole = list(shard.snapshot())

    kept = rebuilt([*made.facts, *added.facts, *whole[:-1]])
    again = rebuilt([*early[:-1], *whole])
    holed = rebuilt([whole[0], whole[1], *whole[3:]])

    assert len(whole) > 4
    assert kept.need(named("q"))[1].body.ready_count == 2
    assert again.need(named("q"))[1].body.ready_count == 2
    assert again.need(named("q"))[1].body.ledger.next_sequence == 2
    assert len(holed) == 0
