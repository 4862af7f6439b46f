"""Commands for one queue, one per line, and what its consumers see as text.

queue [x-argument=VALUE …]                  begin; the arguments of AMQP's queue.declare
publish BODY… [priority=N]                  messages arrive
consume C [prefetch=N] [priority=N] [no-ack]
get C                                       one message, without a consumer (basic.get)
ack C BODY [multiple] · nack C BODY… [multiple]   nack: requeue, the attempt has failed
reject C BODY…                              without requeue
release C BODY…                             requeue, not counted as a failure (AMQP 1.0 released)
cancel C                                    basic.cancel: C keeps what it has not settled
disconnect C                                its connection is lost
advance MS · restart                        time passes; the broker is killed and starts again
status                                      what is ready and who holds what

A delivery is printed as ``C <- BODY``, with ``redelivered`` and the number of the delivery when it
is not the first, and the number of failures when there are any.
"""

import json
import shlex
from collections.abc import Callable

from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.queues.arguments import settings_of
from mainstem.queues.engine.consumer_window import ConsumerWindow
from mainstem.queues.engine.consumers import Consumer
from mainstem.queues.engine.effects import ActiveChanged, Deliver, LeaseLost, Notice, QueueEffects
from mainstem.queues.engine.queue_machine import Queue
from mainstem.queues.engine.settling import ACKNOWLEDGE, REJECT, RELEASE, RETURN, Settlement
from mainstem.queues.facts import ONLY_LANE, Pointer, QueueFact
from mainstem.queues.settings import QueueSettings
from mainstem.queues.storage.ledger import QueueLedger

Words = list[str]
Options = dict[str, str]
Command = Callable[[Words, Options], None]

STREAM = StreamId(TopicId(bytes(16)), PartitionIndex(0))
START_MS = 1_000_000
BODY_BYTES = 10
TURNS_MAX = 500
SETTLEMENTS = {"ack": ACKNOWLEDGE, "nack": RETURN, "reject": REJECT, "release": RELEASE}


class QueueScript:
    """Runs commands and prints what they cause."""

    def __init__(self) -> None:
        self._now_ms = START_MS
        self._settings = QueueSettings()
        self._queue: Queue
        self._facts: list[QueueFact] = []
        self._bodies: list[str] = []
        # The last delivery of each body to each holder.
        self._numbers: dict[tuple[str, str], int] = {}
        self._out: list[str] = []
        self._commands: dict[str, Command] = {
            "queue": self._declare,
            "publish": self._publish,
            "consume": self._consume,
            "get": self._get,
            "cancel": lambda words, _: self._done(self._queue.on_cancelled(words[0], self._now_ms)),
            "disconnect": lambda words, _: self._done(self._queue.on_gone(words[0], self._now_ms)),
            "advance": self._advance,
            "restart": self._restart,
            "status": self._status,
        }

    def run(self, line: str) -> str:
        """Run one command; its output."""
        self._out = []
        name, *words = shlex.split(line)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if name in SETTLEMENTS:
            self._settle(plain, SETTLEMENTS[name])
        else:
            self._commands[name](plain, options)
        return "\n".join(self._out)

    def _declare(self, _: Words, options: Options) -> None:
        self._settings = settings_of({name: _value(text) for name, text in options.items()})
        self._queue = Queue(0, self._settings, self._now_ms)

    def _publish(self, words: Words, options: Options) -> None:
        first = len(self._bodies)
        self._bodies += words
        assert len(set(self._bodies)) == len(self._bodies), "a body names one message"
        priority = int(options.get("priority", 0))
        pointers = tuple(
            Pointer(offset, BODY_BYTES, priority) for offset in range(first, len(self._bodies))
        )
        self._done(self._queue.on_offered(STREAM, pointers, self._now_ms))

    def _consume(self, words: Words, options: Options) -> None:
        window = ConsumerWindow(int(options.get("prefetch", 0)))
        priority = int(options.get("priority", 0))
        consumer = Consumer(words[0], window, priority=priority, no_ack="no-ack" in words)
        self._done(self._queue.on_consume(consumer, self._now_ms))

    def _get(self, words: Words, _: Options) -> None:
        effects = self._queue.on_get(words[0], self._now_ms)
        if not effects.deliveries:
            self._out.append("the queue is empty")
        self._done(effects)

    def _settle(self, words: Words, how: Settlement) -> None:
        holder, *bodies = [word for word in words if word != "multiple"]
        numbers = {self._numbers[holder, body]: body for body in bodies}
        effects = self._queue.on_settled(
            holder, numbers, how, self._now_ms, multiple="multiple" in words
        )
        self._out += [f"{holder} does not hold {numbers[each]}" for each in effects.unknown]
        self._done(effects)

    def _advance(self, words: Words, _: Options) -> None:
        until_ms = self._now_ms + int(words[0])
        for _turn in range(TURNS_MAX):
            due_ms = self._queue.next_ms()
            if due_ms is None or due_ms > until_ms:
                self._now_ms = until_ms
                return
            self._now_ms = max(self._now_ms, due_ms)
            self._done(self._queue.on_time(self._now_ms))
        raise AssertionError("a timer stays due")

    def _restart(self, *_: object) -> None:
        """All connections are gone; the ledger is what the stored facts say."""
        ledger = QueueLedger(is_fanout=False)
        for fact in self._facts:
            ledger.replay(fact)
        self._numbers = {}
        self._queue = Queue(0, self._settings, self._now_ms, ledger)
        self._done(self._queue.on_recovered(self._now_ms))

    def _status(self, *_: object) -> None:
        body = self._queue.body
        held: dict[str, list[str]] = {}
        for lease in body.leases:
            held.setdefault(lease.holder, []).append(self._body(lease.item.pointer))
        self._out.append(f"{body.ready_count} ready, {len(body.leases)} unacknowledged")
        self._out += [f"{holder} holds {' '.join(bodies)}" for holder, bodies in held.items()]

    def _done(self, effects: QueueEffects) -> None:
        """Carry out what the queue decided, as its driver does."""
        self._facts += effects.facts
        for notice in effects.notices:
            self._print_notice(notice)
        for delivery in effects.deliveries:
            body = self._body(delivery.pointer)
            self._numbers[delivery.consumer, body] = delivery.number
            self._out.append(f"{delivery.consumer} <- {body}{_history(delivery)}")
        for dropped in effects.dropped:
            self._out.append(f"{dropped.messages} dropped: {dropped.reason.amqp}")
        for letter in effects.dead_letters:
            target = self._settings.dead_letter_exchange
            self._out.append(f"{self._body(letter.pointer)} -> {target}: {letter.reason.amqp}")
        if effects.dead_letters:
            gone = [letter.sequence for letter in effects.dead_letters]
            self._done(self._queue.on_dead_lettered(ONLY_LANE, gone, self._now_ms))

    def _print_notice(self, notice: Notice) -> None:
        match notice:
            case LeaseLost(_, holder, number):
                lost = [body for (_, body), its in self._numbers.items() if its == number]
                self._out.append(f"{holder} was too slow with {' '.join(lost)}")
            case ActiveChanged(_, None):
                self._out.append("nobody is active")
            case ActiveChanged(_, active):
                self._out.append(f"{active} is active")
            case _:
                raise AssertionError(f"no scenario is about {notice}")

    def _body(self, pointer: Pointer) -> str:
        return self._bodies[pointer.offset]


def _value(text: str) -> object:
    """Numbers and flags as such, everything else as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _history(delivery: Deliver) -> str:
    if not delivery.redelivered:
        return ""
    failed = f", failed {delivery.failures}" if delivery.failures else ""
    return f" redelivered, delivery {delivery.attempt}{failed}"
