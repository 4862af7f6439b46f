"""Dead letters: reads the body, adds the history, publishes, then removes the original.

After a crash the letters of all condemned messages are due again. Those that were already appended
are found by their ids in the streams of their exchange, from the time of the oldest letter on.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainstem.model.errors import Corrupt, MainstemError
from mainstem.model.message import Message
from mainstem.model.records.batch import NO_TIMESTAMP
from mainstem.queues.api_types import Published, Routing
from mainstem.queues.context import QueuesContext
from mainstem.queues.dead_letter_history import (
    DEAD_LETTER_ID,
    X_DEATH,
    Death,
    closes_cycle,
    dead_letter,
    death_history_of,
)
from mainstem.queues.drivers.virtual_host_driver import VirtualHost
from mainstem.queues.drivers.virtual_hosts_driver import VirtualHosts
from mainstem.queues.engine.effects import DeadLetter
from mainstem.queues.facts import RemovalReason
from mainstem.queues.routing.message_routing import excluding, routing_of
from mainstem.queues.settings import QueueSettings
from mainstem.queues.shards.shard_driver import QueueShardDriver
from mainstem.queues.storage.message_body_driver import records_between
from mainstem.queues.storage.queue_state import QueueState

if TYPE_CHECKING:
    from mainstem.queues.publishing.publisher_driver import QueuePublisher

_RETRY_S = 1.0
_COPIES = ("CC", "BCC")

_log = logging.getLogger(__name__)

_PendingLetter = tuple[QueueShardDriver, DeadLetter]


class DeadLetterer:
    """Publishes dead letters and then removes the originals."""

    def __init__(self, context: QueuesContext, hosts: VirtualHosts) -> None:
        self._hosts = hosts
        self._bodies = context.bodies
        self._counts = context.counts
        self._publishers: dict[str, QueuePublisher] = {}
        self._pending: dict[int, _PendingLetter] = {}
        self._next_token = 0

    def forget(self) -> None:
        """Reset before a reload: unfinished letters will be due again."""
        self._publishers.clear()
        self._pending.clear()

    def recovered(self, shard: QueueShardDriver, letters: Sequence[DeadLetter]) -> None:
        """Publish letters after a restart, except those that were appended before."""
        if not letters:
            return
        known: dict[tuple[str, str], set[bytes]] = {}
        since_ms = min(letter.at_ms for letter in letters)
        left: list[DeadLetter] = []
        for letter in letters:
            entry = shard.live.shard.queues.entries.get(letter.queue)
            target = None if entry is None else entry.settings.dead_letter_exchange
            if entry is not None and target is not None:
                where = (entry.name.namespace, target)
                if where not in known:
                    known[where] = self._appended(*where, since_ms)
                if dead_letter_id(shard, letter).encode() in known[where]:
                    self._dead_letter(shard, letter)
                    continue
            left.append(letter)
        self.dead_letter(shard, left)

    def dead_letter(self, shard: QueueShardDriver, letters: Sequence[DeadLetter]) -> None:
        """Publish dead letters; their originals are removed once they are committed."""
        for letter in letters:
            entry = shard.live.shard.queues.entries.get(letter.queue)
            if entry is not None and not self._publish(shard, letter, entry):
                self._dead_letter(shard, letter)

    def refused(self, namespace: str, queue: str, message: Message, routing: Routing) -> None:
        """Publish the dead letter of a message that a full queue refused."""
        host = self._hosts.by_name[namespace]
        shard, number = host.queues.by_name[queue]
        settings = shard.live.shard.queues.entries[number].settings
        now_ms = shard.now_ms()
        death = Death(
            queue=queue,
            reason=RemovalReason.OVERFLOW.amqp,
            routing_keys=routing.keys,
            time_ms=now_ms,
            why=RemovalReason.OVERFLOW,
        )
        letter = dead_letter(_sound(message), death, f"refused-{shard.live.partition}-{now_ms}")
        target = settings.dead_letter_exchange
        is_there = target is not None and target in host.state.topology.live
        if not is_there or not self._send(host, settings, letter, -1):
            self._counts.dropped[RemovalReason.OVERFLOW] += 1

    def _publish(self, shard: QueueShardDriver, letter: DeadLetter, entry: QueueState) -> bool:
        """Publish one letter; False if the body or the exchange no longer exists."""
        host = self._hosts.by_name[entry.name.namespace]
        target = entry.settings.dead_letter_exchange
        published = self._bodies.read_published(letter.stream, letter.pointer.offset)
        if published is None or target is None or target not in host.state.topology.live:
            self._counts.dropped[letter.reason] += 1
            return False
        message, exchange = published
        message = _sound(message)
        routing = routing_of(message)
        death = Death(
            queue=entry.name.name,
            reason=letter.reason.amqp,
            exchange=exchange,
            routing_keys=routing.keys,
            time_ms=letter.at_ms,
            why=letter.reason,
            attempts=letter.failures,
        )
        self._next_token += 1
        token = self._next_token
        self._pending[token] = (shard, letter)
        history = dead_letter(message, death, dead_letter_id(shard, letter))
        if self._send(host, entry.settings, history, token):
            return True
        del self._pending[token]
        self._counts.dropped[letter.reason] += 1
        return False

    def _send(
        self, host: VirtualHost, settings: QueueSettings, letter: Message, token: int
    ) -> bool:
        """Publish a letter; False if all its target queues would close a cycle."""
        target = settings.dead_letter_exchange
        assert target is not None, "checked by the callers"
        key = settings.dead_letter_key
        if key is not None:
            for name in _COPIES:
                letter = letter.with_header(name, None)
            letter = letter._replace(key=key.encode())
        routing = routing_of(letter)
        queues = host.state.topology.live.route(target, routing.keys, routing.headers)
        deaths = death_history_of(letter)
        cycling = [queue for queue in queues if closes_cycle(deaths, queue)]
        if cycling and len(cycling) == len(queues):
            return False
        letter = excluding(letter, cycling)._replace(timestamp_ms=NO_TIMESTAMP)
        publisher = self._publishers.get(host.name)
        if publisher is None:
            publisher = self._hosts.publisher(host.name, self._settled, is_forced=True)
            self._publishers[host.name] = publisher
        publisher.publish(target, letter, routing_of(letter), token)
        return True

    def _settled(self, tokens: Sequence[int], published: Published) -> None:
        letters = [self._pending.pop(token) for token in tokens if token in self._pending]
        if published.error is not None:
            # The disk may be full, or another node writes the stream: the messages stay condemned
            # until their letters are stored.
            asyncio.get_running_loop().call_later(_RETRY_S, self._again, letters)
            return
        for shard, letter in letters:
            self._counts.dead_lettered[letter.reason] += 1
            self._dead_letter(shard, letter)

    def _again(self, letters: list[_PendingLetter]) -> None:
        for shard, letter in letters:
            if shard.is_open:
                self.dead_letter(shard, [letter])

    def _dead_letter(self, shard: QueueShardDriver, letter: DeadLetter) -> None:
        queue = shard.shard.queue(letter.queue)
        if queue is not None and shard.is_open:
            effects = queue.on_dead_lettered(letter.lane, [letter.sequence], shard.now_ms())
            shard.take(letter.queue, effects)

    def _appended(self, namespace: str, exchange: str, since_ms: int) -> set[bytes]:
        """The ids of all letters that an exchange received since a time."""
        found: set[bytes] = set()
        for stream in self._hosts.by_name[namespace].exchanges.streams.get(exchange, ()):
            writer = stream.writer
            moment = writer.offset_for_timestamp(since_ms)
            if moment is None:
                continue
            try:
                for record in records_between(writer, moment[0], writer.committed):
                    for name, value in record.headers:
                        if name == DEAD_LETTER_ID and value is not None:
                            found.add(value)
            except MainstemError as error:
                _log.warning("dead letters of '%s' may be repeated: %s", exchange, error)
        return found


def dead_letter_id(shard: QueueShardDriver, letter: DeadLetter) -> str:
    """The id of a letter: shard, queue, lane and sequence, which are never reused."""
    return f"{shard.live.partition}-{letter.queue}-{letter.lane}-{letter.sequence}"


def _sound(message: Message) -> Message:
    """The message without an invalid history."""
    try:
        death_history_of(message)
    except Corrupt:
        return message.with_header(X_DEATH, None)
    return message
