"""A fan-out against sets: every subscriber of the moment gets every message and settles its own."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import Phase
from hypothesis import settings as profile
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.queues.admission.watermarks import Watermarks
from mainstem.queues.engine.consumer_window import ConsumerWindow
from mainstem.queues.engine.consumers import Consumer
from mainstem.queues.engine.effects import QueueEffects
from mainstem.queues.engine.queue_machine import Queue
from mainstem.queues.engine.settling import ACKNOWLEDGE, REJECT, RETURN, Settlement
from mainstem.queues.engine.shard import QueueShard
from mainstem.queues.facts import ALL_LANES, Pointer, QueueFact
from mainstem.queues.settings import DeliveryMode, QueueName, QueueSettings
from mainstem.queues.storage.fact_codec import QUEUE_CODEC
from mainstem.queues.storage.queue_state import QueueStateTable

STREAM = StreamId(TopicId(bytes(16)), PartitionIndex(3))
NAME = QueueName("/", "news")
STEPS_PER_EXAMPLE = 50
STEPS = int(os.environ.get("MAINSTEM_QUEUE_STEPS", "5000"))

SETTINGS = st.builds(
    QueueSettings,
    mode=st.sampled_from([DeliveryMode.FANOUT_WITH_ACK] * 3 + [DeliveryMode.FANOUT]),
    max_length=st.just(None) | st.just(None) | st.integers(1, 8),
    dead_letter_exchange=st.none() | st.just("dlx"),
    max_attempts=st.none() | st.integers(1, 3),
    retry_ms=st.just(0) | st.integers(1, 50),
    absence_ms=st.integers(1, 200),
    message_ttl_ms=st.just(None) | st.just(None) | st.integers(0, 300),
)
NAMES = st.sampled_from("abc")


@dataclass
class Copy:
    """What one subscriber owes."""

    failures: int = 0
    visible_ms: int = 0
    number: int | None = None
    is_dying: bool = False


@dataclass
class Line:
    """One subscriber."""

    is_named: bool
    window: int | None = None  # None: not there
    absent_since_ms: int = 0
    copies: dict[int, Copy] = field(default_factory=dict)
    # Deliveries whose message was dropped meanwhile: still in the subscriber's hands.
    void: set[int] = field(default_factory=set)

    def has_space(self) -> bool:
        held = sum(copy.number is not None for copy in self.copies.values()) + len(self.void)
        return self.window is not None and (not self.window or held < self.window)

    def ready(self, now_ms: int) -> list[int]:
        return sorted(
            offset
            for offset, copy in self.copies.items()
            if copy.number is None and copy.visible_ms <= now_ms and not copy.is_dying
        )

    def drop(self, offset: int) -> None:
        copy = self.copies.pop(offset, None)
        if copy is not None and copy.number is not None:
            self.void.add(copy.number)

    def go(self, now_ms: int) -> None:
        self.window = None
        self.absent_since_ms = now_ms
        self.void.clear()
        for copy in self.copies.values():
            copy.number = None


class FanoutMachine(RuleBasedStateMachine):
    """Plays publishers, subscribers that come and go, time and crashes."""

    steps = 0

    @initialize(settings=SETTINGS, readers=st.integers(0, 2))
    def begin(self, settings: QueueSettings, readers: int) -> None:
        self.settings = settings
        self.now_ms = 1_000
        self.next_offset = 0
        self.stored: list[tuple[bytes, bytes | None]] = []
        self.shadow = QueueStateTable()
        self.lines: dict[str, Line] = {}
        # Offset -> whether somebody has settled it.
        self.messages: dict[int, bool] = {}
        self.expires: dict[int, int] = {}
        self.whole_dying: set[int] = set()
        self.shard = QueueShard(QueueStateTable(), Watermarks(10**9), self.now_ms)
        declared, effects = self.shard.on_declare(NAME, settings, self.now_ms)
        self.number = declared.queue
        self.keep(effects.facts)
        for name in "ab"[:readers]:
            self.subscribe(name, 2, is_named=False)

    @property
    def queue(self) -> Queue:
        return self.shard.need(NAME)[1]

    @property
    def has_acks(self) -> bool:
        return self.settings.mode is DeliveryMode.FANOUT_WITH_ACK

    def keep(self, facts: list[QueueFact]) -> None:
        for fact in facts:
            record = QUEUE_CODEC.encode(fact)
            self.stored.append(record)
            again = QUEUE_CODEC.decode(*record)
            assert again is not None
            self.shadow.replay(again)

    def play(self, act: Callable[[Queue], QueueEffects]) -> None:
        effects = self.shard.after(self.number, act(self.queue), self.now_ms)
        self.keep(effects.facts)
        self.compare(effects)

    def compare(self, effects: QueueEffects) -> None:
        self.close_absent()
        for delivery in effects.deliveries:
            line = self.lines[delivery.consumer]
            assert line.has_space(), "more than the window holds"
            offset = self.ready(line)[0]
            assert delivery.pointer.offset == offset, "it was another one's turn"
            assert delivery.failures == line.copies[offset].failures
            if self.has_acks:
                line.copies[offset].number = delivery.number
            else:
                self.settled(delivery.consumer, offset)
        for line in self.lines.values():
            assert not (line.has_space() and self.ready(line)), "somebody waits"
        self.expire()
        limit = self.settings.max_length
        alive = [offset for offset in self.messages if offset not in self.whole_dying]
        for offset in alive[: max(0, len(alive) - limit)] if limit is not None else ():
            self.drop(offset)

    def ready(self, line: Line) -> list[int]:
        return [
            offset
            for offset in line.ready(self.now_ms)
            if self.expires.get(offset, self.now_ms) >= self.now_ms
        ]

    def expire(self) -> None:
        """Copies that nobody has, and messages that nobody owes, go when their time is over."""
        over = [offset for offset in self.messages if self.is_over(offset)]
        for offset in over:
            owing = [name for name, line in self.lines.items() if offset in line.copies]
            for name in owing:
                copy = self.lines[name].copies[offset]
                if copy.number is None and not copy.is_dying:
                    self.kill(name, offset)
            if not owing and offset not in self.whole_dying:
                self.drop(offset)

    def is_over(self, offset: int) -> bool:
        return self.expires.get(offset, self.now_ms + 1) <= self.now_ms

    def drop(self, offset: int) -> None:
        """A message goes as a whole."""
        for line in self.lines.values():
            line.drop(offset)
        if self.settings.dead_letter_exchange is None:
            del self.messages[offset]
        else:
            self.whole_dying.add(offset)

    def close_absent(self) -> None:
        for name, line in list(self.lines.items()):
            if line.window is not None or any(copy.is_dying for copy in line.copies.values()):
                continue
            until_ms = line.absent_since_ms + self.settings.absence_ms
            is_over = self.now_ms >= until_ms and not line.is_named
            if is_over or not self.has_acks:
                self.close(name)

    def close(self, name: str) -> None:
        closed = self.lines.pop(name)
        for offset in closed.copies:
            if any(offset in line.copies for line in self.lines.values()):
                continue
            if self.messages[offset]:
                del self.messages[offset]
            else:
                for line in self.lines.values():
                    line.copies[offset] = Copy()

    def settled(self, name: str, offset: int) -> None:
        del self.lines[name].copies[offset]
        self.messages[offset] = True
        if not any(offset in line.copies for line in self.lines.values()):
            del self.messages[offset]

    def kill(self, name: str, offset: int) -> None:
        if self.settings.dead_letter_exchange is None:
            self.settled(name, offset)
        else:
            copy = self.lines[name].copies[offset]
            copy.is_dying, copy.number = True, None

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        pointers = []
        for _ in range(count):
            self.next_offset += 1
            pointers.append(Pointer(self.next_offset, 10))
            self.messages[self.next_offset] = False
            if self.settings.message_ttl_ms is not None:
                self.expires[self.next_offset] = self.now_ms + self.settings.message_ttl_ms
            for line in self.lines.values():
                line.copies[self.next_offset] = Copy()
        self.play(lambda queue: queue.on_offered(STREAM, tuple(pointers), self.now_ms))

    @rule(count=st.integers(1, 4))
    def publish_more(self, count: int) -> None:
        """Rules are drawn alike: what should happen more often is there more often."""
        self.publish(count)

    @rule(name=NAMES, is_named=st.booleans(), window=st.integers(0, 3))
    def subscribe(self, name: str, window: int, *, is_named: bool) -> None:
        line = self.lines.get(name)
        if line is None:
            line = self.lines[name] = Line(is_named)
            for offset in self.messages:
                owed = any(offset in other.copies for other in self.lines.values())
                if not owed and offset not in self.whole_dying:
                    line.copies[offset] = Copy()
        elif line.window is not None:
            return
        line.window = window
        subscriber = name if line.is_named else None
        consumer = Consumer(name, ConsumerWindow(window))
        self.play(lambda queue: queue.on_consume(consumer, self.now_ms, subscriber=subscriber))

    def go(self, name: str) -> None:
        line = self.lines.get(name)
        if line is None or line.window is None:
            return
        self.leave(name)
        self.play(lambda queue: queue.on_gone(name, self.now_ms))

    @rule(name=NAMES)
    def go_away(self, name: str) -> None:
        self.go(name)

    def leave(self, name: str) -> None:
        """What a subscriber had comes back, unless its time is over."""
        line = self.lines[name]
        held = [offset for offset, copy in line.copies.items() if copy.number is not None]
        line.go(self.now_ms)
        for offset in held:
            if self.is_over(offset):
                self.kill(name, offset)

    @rule(how=st.sampled_from([ACKNOWLEDGE, RETURN, REJECT]), data=st.data())
    def settle(self, how: Settlement, data: st.DataObject) -> None:
        holders = [
            name
            for name, line in self.lines.items()
            if line.void or any(copy.number for copy in line.copies.values())
        ]
        if not holders:
            return
        name = data.draw(st.sampled_from(sorted(holders)))
        line = self.lines[name]
        held = {copy.number: offset for offset, copy in line.copies.items() if copy.number}
        numbers = sorted(held.keys() | line.void)
        number = data.draw(st.sampled_from(numbers))
        if number in line.void:
            line.void.remove(number)
            self.play(lambda queue: queue.on_settled(name, [number], how, self.now_ms))
            return
        offset = held[number]
        copy = line.copies[offset]
        copy.number = None
        most = self.settings.max_attempts
        is_worn = most is not None and copy.failures + 1 >= most
        if how == ACKNOWLEDGE:
            self.settled(name, offset)
        elif how == REJECT or self.is_over(offset) or is_worn:
            self.kill(name, offset)
        else:
            copy.failures += 1
            delay_ms = self.settings.retry_delay_ms(copy.failures)
            copy.visible_ms = self.now_ms + delay_ms if delay_ms else 0
        self.play(lambda queue: queue.on_settled(name, [number], how, self.now_ms))

    @rule(name=NAMES)
    def acknowledge_all(self, name: str) -> None:
        line = self.lines.get(name, Line(is_named=False))
        held = {copy.number: offset for offset, copy in line.copies.items() if copy.number}
        for offset in held.values():
            self.settled(name, offset)
        numbers = sorted(held.keys() | line.void)
        line.void.clear()
        self.play(lambda queue: queue.on_settled(name, numbers, ACKNOWLEDGE, self.now_ms))

    @rule(by_ms=st.integers(0, 250))
    def time_passes(self, by_ms: int) -> None:
        until_ms = self.now_ms + by_ms
        while (next_ms := self.shard.next_ms()) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.tick()
            after_ms = self.shard.next_ms()
            assert after_ms is None or after_ms > self.now_ms, "nothing came of being called"
        self.now_ms = until_ms
        self.tick()

    def tick(self) -> None:
        effects = self.shard.on_time(self.now_ms)
        self.keep(effects.facts)
        self.compare(effects)

    @rule()
    def letters_arrive(self) -> None:
        ledger = self.queue.body.ledger
        for key, lane in list(ledger.lanes.items()):
            if key not in ledger.lanes:
                continue  # its subscriber has been away for too long, as an earlier turn found
            line = self.lines[lane.subscriber]
            dying = [seq for seq, item in lane.items.items() if item.reason is not None]
            for sequence in dying:
                offset = lane.items[sequence].pointer.offset
                assert line.copies[offset].is_dying
                self.settled(lane.subscriber, offset)
            lane_id = lane.id
            self.play(
                lambda queue, lane_id=lane_id, dying=dying: queue.on_dead_lettered(  # type: ignore[misc]
                    lane_id, dying, self.now_ms
                )
            )
        whole = [seq for seq, each in ledger.messages.items() if each.reason is not None]
        assert {ledger.messages[seq].pointer.offset for seq in whole} == self.whole_dying
        for offset in self.whole_dying:
            del self.messages[offset]
        self.whole_dying = set()
        self.play(lambda queue: queue.on_dead_lettered(ALL_LANES, whole, self.now_ms))

    def purge(self) -> None:
        for offset in list(self.messages):
            if offset not in self.whole_dying:
                del self.messages[offset]
        for line in self.lines.values():
            for offset in list(line.copies):
                line.drop(offset)
        self.play(lambda queue: queue.on_purged(self.now_ms))

    def crash(self) -> None:
        for line in self.lines.values():
            line.go(self.now_ms)
        book = QueueStateTable()
        for record in self.stored:
            fact = QUEUE_CODEC.decode(*record)
            assert fact is not None
            book.replay(fact)
        self.shard = QueueShard(book, Watermarks(10**9), self.now_ms)
        effects = self.shard.on_recovered(self.now_ms)
        self.keep(effects.facts)
        letters = {letter.pointer.offset for letter in effects.dead_letters}
        dying = {
            offset
            for line in self.lines.values()
            for offset, copy in line.copies.items()
            if copy.is_dying
        }
        assert letters >= self.whole_dying | dying
        self.compare(effects)

    def snapshot(self) -> None:
        facts = list(self.shard.snapshot())
        self.stored = []
        self.shadow = QueueStateTable()
        self.keep(facts)

    @rule(what=st.sampled_from(["go", "go", "go", "purge", "crash", "snapshot"]), name=NAMES)
    def disturb(self, what: str, name: str) -> None:
        """All that ends something, in one rule, so that there is something to end."""
        if what == "go":
            self.go(name)
        else:
            {"purge": self.purge, "crash": self.crash, "snapshot": self.snapshot}[what]()

    @invariant()
    def what_is_stored_is_what_is_known(self) -> None:
        if not hasattr(self, "shard"):
            return
        FanoutMachine.steps += 1
        live = self.queue.body.ledger
        stored = self.shadow.entries[self.number].ledger
        assert _plain(stored.parts()) == _plain(live.parts())
        known = {message.pointer.offset: message.is_handled for message in live.messages.values()}
        assert known == self.messages
        lanes = {lane.subscriber: lane for lane in live.lanes.values()}
        assert lanes.keys() == self.lines.keys()
        for name, line in self.lines.items():
            owed = {item.pointer.offset for item in lanes[name].items.values()}
            assert owed == line.copies.keys()


def _plain(parts: object) -> list[str]:
    return sorted(repr(sorted(part.items(), key=repr)) for part in parts)  # type: ignore[attr-defined]


def test_a_fan_out_behaves_like_sets() -> None:
    FanoutMachine.steps = 0
    while FanoutMachine.steps < STEPS:
        play = profile(
            max_examples=(STEPS - FanoutMachine.steps) // STEPS_PER_EXAMPLE + 1,
            stateful_step_count=STEPS_PER_EXAMPLE,
            deadline=None,
            # Explaining a failure takes far longer than finding it.
            phases=[Phase.reuse, Phase.generate, Phase.shrink],
            print_blob=True,
        )
        run_state_machine_as_test(FanoutMachine, settings=play)
