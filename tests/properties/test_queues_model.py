"""A queue against a list: who gets what, in which order, and what is left after a crash.

``MAINSTEM_QUEUE_STEPS`` says how many steps to play; the few of a usual run find what is broken,
a hundred thousand find what is rare.
"""

import os
from collections.abc import Callable

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
from tests.properties.queue_reference import Held, Reader, Reference

from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.queues.admission.watermarks import Watermarks
from mainstem.queues.engine.consumer_window import ConsumerWindow
from mainstem.queues.engine.consumers import Consumer
from mainstem.queues.engine.effects import QueueEffects
from mainstem.queues.engine.queue_machine import Queue
from mainstem.queues.engine.settling import (
    ACKNOWLEDGE,
    REJECT,
    RELEASE,
    RETURN,
    Settlement,
    SettlementOutcome,
)
from mainstem.queues.engine.shard import QueueShard
from mainstem.queues.facts import (
    ONLY_LANE,
    Pointer,
    PointersAdded,
    QueueFact,
    RemovalReason,
    Settled,
)
from mainstem.queues.settings import DeliveryMode, Overflow, QueueName, QueueSettings
from mainstem.queues.storage.fact_codec import QUEUE_CODEC
from mainstem.queues.storage.queue_state import QueueStateTable

STREAM = StreamId(TopicId(bytes(16)), PartitionIndex(0))
ELSEWHERE = StreamId(TopicId(bytes(16)), PartitionIndex(1))
NAME = QueueName("/", "q")
STEPS_PER_EXAMPLE = 50
STEPS = int(os.environ.get("MAINSTEM_QUEUE_STEPS", "5000"))

NEVER = st.just(None)
LIMITS = NEVER | NEVER | st.integers(1, 6)
SETTINGS = st.builds(
    QueueSettings,
    mode=st.sampled_from([DeliveryMode.ROUND_ROBIN, DeliveryMode.PRIORITY]),
    message_ttl_ms=NEVER | NEVER | NEVER | st.integers(0, 400),
    max_length=NEVER | NEVER | NEVER | st.integers(0, 8),
    max_length_bytes=NEVER | NEVER | NEVER | st.integers(0, 100),
    overflow=st.sampled_from([Overflow.DROP_HEAD, Overflow.REJECT_PUBLISH]),
    max_priority=st.integers(0, 2),
    dead_letter_exchange=st.none() | st.just("dlx"),
    single_active=st.booleans(),
    lease_ms=NEVER | st.integers(1, 300),
    max_attempts=LIMITS,
    max_acquired=LIMITS,
    retry_ms=st.just(0) | st.integers(1, 100),
    retry_max_ms=st.integers(50, 200),
    retry_factor=st.just(2.0),
)
MESSAGES = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.integers(0, 4),
        st.just(0) | st.just(0) | st.just(0) | st.integers(1, 400),
        st.just(0) | st.just(0) | st.just(0) | st.integers(1, 300),
    ),
    min_size=1,
    max_size=5,
)
READERS = st.sampled_from("abcd")
LATER = Settlement(SettlementOutcome.RETURN, is_failure=True, delay_ms=30)
WAIT = Settlement(SettlementOutcome.RETURN, delay_ms=70)
DISTURBANCES = ["crash", "torn crash", "purge", "cancel", "go", "again", "snapshot", "move"]
HOW = [ACKNOWLEDGE, RETURN, RELEASE, REJECT, LATER, WAIT]


class QueueMachine(RuleBasedStateMachine):
    """Plays publishers, consumers, time and crashes."""

    steps = 0

    @initialize(settings=SETTINGS, readers=st.integers(0, 2))
    def begin(self, settings: QueueSettings, readers: int) -> None:
        self.now_ms = 1_000
        self.stored: list[tuple[bytes, bytes | None]] = []
        self.shadow = QueueStateTable()
        self.next_offset = self.known = 0
        self.reference = Reference(settings)
        self.letters: dict[int, RemovalReason] = {}
        self.shard = QueueShard(QueueStateTable(), Watermarks(10**9), self.now_ms)
        declared, effects = self.shard.on_declare(NAME, settings, self.now_ms)
        self.number = declared.queue
        self.keep(effects.facts)
        for name in "ab"[:readers]:
            self.consume(name, 3, 0, no_ack=False)

    @property
    def queue(self) -> Queue:
        return self.shard.need(NAME)[1]

    def keep(self, facts: list[QueueFact]) -> None:
        """Store facts as bytes; what is read back is all that a restart knows."""
        for fact in facts:
            record = QUEUE_CODEC.encode(fact)
            self.stored.append(record)
            if isinstance(fact, PointersAdded):
                self.known = fact.pointers[-1].offset
            again = QUEUE_CODEC.decode(*record)
            assert again is not None
            self.shadow.replay(again)

    def play(self, act: Callable[[Queue], QueueEffects]) -> QueueEffects:
        """One verb: store, then compare what is sent with what should be."""
        effects = self.shard.after(self.number, act(self.queue), self.now_ms)
        self.keep(effects.facts)
        self.compare(effects)
        return effects

    def compare(self, effects: QueueEffects) -> None:
        for delivery in effects.deliveries:
            self.reference.delivered(delivery, self.now_ms)
        stalled = self.reference.ready(self.now_ms) and self.reference.eligible()
        assert not stalled, "somebody waits for what is ready"
        self.reference.finish(self.now_ms)
        self.check_letters(effects)

    def check_letters(self, effects: QueueEffects) -> None:
        fresh = Reference.named(effects.dead_letters)
        assert not fresh.keys() & self.letters.keys(), "one dead letter was sent twice"
        self.letters |= fresh
        assert self.letters == self.reference.dying()

    @rule(messages=MESSAGES)
    def publish(self, messages: list[tuple[int, int, int, int]]) -> None:
        pointers = []
        sequence = self.queue.body.ledger.next_sequence
        ttl_ms = self.reference.settings.message_ttl_ms
        for size_bytes, priority, life_ms, delay_ms in messages:
            visible_ms = self.now_ms + delay_ms if delay_ms else 0
            expires_ms = self.now_ms + life_ms if life_ms else 0
            self.next_offset += 1
            pointers.append(Pointer(self.next_offset, size_bytes, priority, expires_ms, visible_ms))
            if ttl_ms is not None:
                limit_ms = max(self.now_ms, visible_ms) + ttl_ms
                expires_ms = min(expires_ms or limit_ms, limit_ms)
            self.reference.messages.append(
                Held(
                    self.next_offset,
                    size_bytes,
                    priority,
                    expires_ms,
                    visible_ms,
                    sequence=sequence + len(pointers) - 1,
                )
            )
        self.play(lambda queue: queue.on_offered(STREAM, tuple(pointers), self.now_ms))

    @rule(messages=MESSAGES)
    def publish_more(self, messages: list[tuple[int, int, int, int]]) -> None:
        """Rules are drawn alike: what should happen more often is there more often."""
        self.publish(messages)

    def publish_again(self, back: int) -> None:
        """A router that was not told offers what is known already."""
        offsets = range(max(1, self.known - back), self.known + 1)
        pointers = tuple(Pointer(offset, 1) for offset in offsets)
        if pointers:
            effects = self.play(lambda queue: queue.on_offered(STREAM, pointers, self.now_ms))
            assert effects.count == 0

    @rule(
        name=READERS,
        window=st.integers(0, 4),
        priority=st.integers(0, 1),
        no_ack=st.sampled_from([False, False, False, False, True]),
    )
    def consume(self, name: str, window: int, priority: int, *, no_ack: bool) -> None:
        if name in self.reference.readers or any(
            each.holder == name for each in self.reference.messages
        ):
            return
        self.reference.came += 1
        reader = Reader(name, 0 if no_ack else window, priority, no_ack, self.reference.came)
        self.reference.readers[name] = reader
        consumer = Consumer(name, ConsumerWindow(window), priority=priority, no_ack=no_ack)
        self.play(lambda queue: queue.on_consume(consumer, self.now_ms))

    def cancel(self, name: str) -> None:
        self.reference.readers.pop(name, None)
        self.play(lambda queue: queue.on_cancelled(name, self.now_ms))

    def go(self, name: str) -> None:
        self.reference.readers.pop(name, None)
        for message in list(self.reference.messages):
            if message.holder == name:
                self.reference.give_back(message, self.now_ms, is_failure=False)
        self.play(lambda queue: queue.on_gone(name, self.now_ms))

    @rule(no_ack=st.sampled_from([False, False, True]))
    def get(self, *, no_ack: bool) -> None:
        ready = self.reference.ready(self.now_ms)
        effects = self.shard.after(
            self.number, self.queue.on_get("g", self.now_ms, no_ack=no_ack), self.now_ms
        )
        self.keep(effects.facts)
        asked = [each for each in effects.deliveries if each.consumer == "g"]
        assert bool(asked) == bool(ready)
        if asked:
            assert asked[0].pointer.offset == ready[0].offset
            self.reference.take(ready[0], asked[0], self.now_ms, no_ack=no_ack)
            effects.deliveries.remove(asked[0])
        self.compare(effects)

    @rule(how=st.sampled_from(HOW), multiple=st.booleans(), data=st.data())
    def settle(self, how: Settlement, data: st.DataObject, *, multiple: bool) -> None:
        holders = sorted({each.holder for each in self.reference.messages if each.holder})
        if holders:
            self.settle_of(data.draw(st.sampled_from(holders)), how, data, multiple=multiple)

    @rule(how=st.sampled_from(HOW), data=st.data())
    def settle_more(self, how: Settlement, data: st.DataObject) -> None:
        self.settle(how, data, multiple=False)

    def settle_of(self, name: str, how: Settlement, data: st.DataObject, *, multiple: bool) -> None:
        held = [each for each in self.reference.messages if each.holder == name]
        chosen = data.draw(st.sets(st.sampled_from([each.number for each in held]), min_size=1))
        if multiple:
            last = max(chosen)
            ending = [each for each in held if each.number <= last]
        else:
            ending = [each for each in held if each.number in chosen]
        for message in ending:
            if how == ACKNOWLEDGE:
                self.reference.messages.remove(message)
            elif how == REJECT:
                self.reference.kill(message, RemovalReason.REJECTED)
            else:
                self.reference.give_back(
                    message, self.now_ms, is_failure=how.is_failure, delay_ms=how.delay_ms
                )
        effects = self.play(
            lambda queue: queue.on_settled(
                name, sorted(chosen), how, self.now_ms, multiple=multiple
            )
        )
        assert effects.count == len(ending)
        again = self.play(
            lambda queue: queue.on_settled(name, sorted(chosen), ACKNOWLEDGE, self.now_ms)
        )
        assert set(again.unknown) == chosen, "what is settled cannot be settled again"

    def purge(self) -> None:
        waiting = self.reference.waiting()
        for message in waiting:
            self.reference.messages.remove(message)
        effects = self.play(lambda queue: queue.on_purged(self.now_ms))
        assert effects.count == len(waiting)

    @rule(by_ms=st.integers(0, 250))
    def time_passes(self, by_ms: int) -> None:
        """In small steps, as a driver that comes when it was asked to."""
        until_ms = self.now_ms + by_ms
        while (next_ms := self.shard.next_ms()) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.tick()
            after_ms = self.shard.next_ms()
            assert after_ms is None or after_ms > self.now_ms, "nothing came of being called"
        self.now_ms = until_ms
        self.tick()

    def tick(self) -> None:
        self.reference.lapse(self.now_ms)
        effects = self.shard.on_time(self.now_ms)
        self.keep(effects.facts)
        self.compare(effects)

    @rule(data=st.data())
    def letters_arrive(self, data: st.DataObject) -> None:
        if not self.letters:
            return
        offsets = data.draw(st.sets(st.sampled_from(sorted(self.letters)), min_size=1))
        sequences = []
        for message in list(self.reference.messages):
            if message.offset in offsets:
                self.reference.messages.remove(message)
                sequences.append(message.sequence)
                del self.letters[message.offset]
        self.play(lambda queue: queue.on_dead_lettered(ONLY_LANE, sequences, self.now_ms))

    def crash(self) -> None:
        """Kill -9: what is left are the bytes of facts."""
        self.reference.crash()
        book = QueueStateTable()
        for record in self.stored:
            fact = QUEUE_CODEC.decode(*record)
            assert fact is not None
            book.replay(fact)
        self.shard = QueueShard(book, Watermarks(10**9), self.now_ms)
        self.letters = {}
        effects = self.shard.on_recovered(self.now_ms)
        self.keep(effects.facts)
        self.compare(effects)

    def torn_crash(self, act: str, share: float) -> None:
        """Kill -9 while the facts of a step are being written: only the first of them are there."""
        before = {each.sequence for each in self.reference.messages}
        until = self.queue.body.ledger.next_sequence
        effects = self.torn_step(act)
        settled = {
            sequence
            for fact in effects.facts
            if isinstance(fact, Settled)
            for span in fact.spans
            for sequence in range(*span)
        }
        self.keep(effects.facts[: round(share * len(effects.facts))])
        kept = self.shadow.entries[self.number].ledger.lanes[ONLY_LANE].items.values()
        after = {item.sequence for item in kept}
        assert before - settled <= after, "a message that nobody settled is gone"
        assert after <= before | {until, until + 1}, "a message came back"
        self.reference.messages = [
            Held(
                item.pointer.offset,
                item.pointer.size_bytes,
                item.pointer.priority,
                item.pointer.expires_ms,
                item.visible_ms,
                sequence=item.sequence,
                acquired=item.acquired,
                failures=item.failures,
                dying=item.reason,
            )
            for item in kept
        ]
        self.crash()

    def move(self, share: float) -> None:
        """Bodies are appended elsewhere; the reference knows messages by their offsets."""
        count = round(share * len(self.reference.messages))
        moved = {each.sequence: each.offset for each in self.reference.messages[:count]}
        self.play(lambda queue: queue.on_moved(ELSEWHERE, moved, self.now_ms))
        items = self.queue.body.ledger.lanes[ONLY_LANE].items
        assert all(items[each].stream == ELSEWHERE for each in moved if each in items)

    def torn_step(self, act: str) -> QueueEffects:
        if act == "publish":
            self.next_offset += 2
            pointers = (Pointer(self.next_offset - 1, 5), Pointer(self.next_offset, 5))
            return self.queue.on_offered(STREAM, pointers, self.now_ms)
        if act == "purge":
            return self.queue.on_purged(self.now_ms)
        if act == "tick":
            self.now_ms += 100
            return self.queue.on_time(self.now_ms)
        how = {"acknowledge": ACKNOWLEDGE, "return": RETURN, "reject": REJECT}[act]
        holder = next((each.holder for each in self.reference.messages if each.holder), "a")
        held = self.queue.body.leases.of(holder)
        return self.queue.on_settled(holder, held, how, self.now_ms)

    @rule(
        what=st.sampled_from(DISTURBANCES),
        name=READERS | st.just("g"),
        act=st.sampled_from(["publish", "acknowledge", "return", "reject", "purge", "tick"]),
        share=st.floats(0, 1),
    )
    def disturb(self, what: str, name: str, act: str, share: float) -> None:
        """All that ends something, in one rule, so that there is something to end."""
        if what == "crash":
            self.crash()
        elif what == "torn crash":
            self.torn_crash(act, share)
        elif what == "purge":
            self.purge()
        elif what == "cancel":
            self.cancel(name)
        elif what == "go":
            self.go(name)
        elif what == "again":
            self.publish_again(round(5 * share))
        elif what == "move":
            self.move(share)
        else:
            self.snapshot(round(4 * share), is_whole=act in ("publish", "tick"))

    def snapshot(self, cut: int, *, is_whole: bool) -> None:
        """A whole one makes what was stored before superfluous; one cut short changes nothing."""
        facts = list(self.shard.snapshot())
        if is_whole:
            self.stored = []
            self.shadow = QueueStateTable()
            self.keep(facts)
        else:
            self.keep(facts[: min(cut, len(facts) - 1)])

    @invariant()
    def what_is_stored_is_what_is_known(self) -> None:
        if not hasattr(self, "shard"):
            return
        QueueMachine.steps += 1
        live = self.queue.body.ledger
        stored = self.shadow.entries[self.number].ledger
        assert dump(stored) == dump(live)
        kept = {item.pointer.offset for item in live.lanes[ONLY_LANE].items.values()}
        assert kept == {each.offset for each in self.reference.messages}

    @invariant()
    def counts_are_right(self) -> None:
        if not hasattr(self, "shard"):
            return
        body = self.queue.body
        waiting = self.reference.waiting()
        assert body.waiting == (len(waiting), sum(each.size_bytes for each in waiting))
        assert len(body.leases) == sum(each.holder is not None for each in self.reference.messages)
        assert body.ledger.total_bytes == sum(each.size_bytes for each in self.reference.messages)

    def teardown(self) -> None:
        """After all crashes everything that was not settled is delivered, in order."""
        if not hasattr(self, "shard"):
            return
        self.crash()
        self.now_ms += 10_000
        self.tick()
        expected = [each.offset for each in self.reference.ready(self.now_ms)]
        seen = []
        while found := self.queue.on_get("last", self.now_ms, no_ack=True).deliveries:
            seen += [delivery.pointer.offset for delivery in found]
        assert seen == expected


def dump(ledger: object) -> object:
    """All that a ledger keeps, as plain values."""
    parts = list(ledger.parts())  # type: ignore[attr-defined]
    return [sorted(part.items(), key=lambda pair: pair[0]) for part in parts]


def test_a_queue_behaves_like_a_list() -> None:
    QueueMachine.steps = 0
    while QueueMachine.steps < STEPS:
        examples = (STEPS - QueueMachine.steps) // STEPS_PER_EXAMPLE + 1
        play = profile(
            max_examples=examples,
            stateful_step_count=STEPS_PER_EXAMPLE,
            deadline=None,
            # Explaining a failure takes far longer than finding it.
            phases=[Phase.reuse, Phase.generate, Phase.shrink],
            print_blob=True,
        )
        run_state_machine_as_test(QueueMachine, settings=play)
