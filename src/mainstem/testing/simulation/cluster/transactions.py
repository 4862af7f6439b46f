"""Transactional producers and offset commits of ``simulator``, and what was acknowledged to them.

Checked guarantees: a transaction is visible completely or not at all, on every partition and in the
offset committed with it, as it was answered; visible records stay; an offset never moves back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from functools import lru_cache, partial
from random import Random
from typing import Final

from mainstem.coordination.groups.requests import CommitRequest, OffsetToCommit
from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.coordination.transactions.requests import EndRequest, InitRequest
from mainstem.coordination.transactions.state import ProducerIdentity
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.records.batch import TRANSACTIONAL_MASK
from mainstem.model.records.record import ProducerStamp, Record, batches_of, build_batch, records_of
from mainstem.model.topic_name import TRANSACTION_STATE_TOPIC
from mainstem.testing.simulation.cluster.clients import GuaranteeViolated, is_damage
from mainstem.testing.simulation.cluster.node import SimNode

TOPIC: Final = "x"
PARTITIONS: Final = 2
TIMEOUT_MS: Final = 8_000

# The node that writes a partition of a topic, or coordinates its groups, per client metadata.
Find = Callable[[str, int], SimNode | None]


class CachedFinder:
    """Finds a node as clients do: the one that answered before, until it refuses or is silent."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._known: dict[tuple[str, int], SimNode] = {}

    def __call__(self, topic: str, partition: int) -> SimNode | None:
        """The node to ask."""
        found = self._known.get((topic, partition)) or self._find(topic, partition)
        if found is not None:
            self._known[topic, partition] = found
        return found

    def forget(self, topic: str, partition: int) -> None:
        """Find the node again at the next request."""
        self._known.pop((topic, partition), None)


class TransactionOutcome(Enum):
    """Known outcome of a transaction."""

    ABORTED = auto()
    COMMITTED = auto()
    UNKNOWN = auto()


class SimGroupOffsets:
    """Commits offsets of a group, and checks that they are stored."""

    def __init__(self, rng: Random, find: Find, trace: Callable[[str], None]) -> None:
        self._rng = rng
        self._find = find
        self._cached_find = CachedFinder(find)
        self._trace = trace
        self.tried = self.reached = 0
        self.is_done = False

    async def commit_until_done(self) -> None:
        """Commit growing offsets; one that was not acknowledged may be stored or not."""
        while not self.is_done:
            await asyncio.sleep(self._rng.random() * 0.5)
            self.tried += 1
            node = self._find(OFFSETS_TOPIC, 0)
            if node is None:
                continue
            try:
                await self._commit(node, self.tried)
                self._trace(f"position {self.tried}")
                await self.look()
            except (MainstemError, TimeoutError) as error:
                _check_retriable(error)

    async def _commit(self, node: SimNode, position: int) -> None:
        kept = (OffsetToCommit(TOPIC, 0, position),)
        request = CommitRequest(group_id="plain", offsets=kept)
        outcomes = await node.serve(partial(node.coordinators.groups.commit_offsets, request))
        if any(outcomes):
            raise GuaranteeViolated(f"an offset commit is refused: {outcomes}")
        self.reached = position

    async def look(self) -> None:
        """Fetch the offset: acknowledged ones must be stored, attempted ones may be."""
        found = await fetched(self._cached_find, "plain")
        if not self.reached <= found <= self.tried:
            raise GuaranteeViolated(f"an offset is {found}, not {self.reached} to {self.tried}")
        self.reached = found


class SimTransactions:
    """One transactional producer, with a group whose offset some transactions commit."""

    def __init__(self, number: int, rng: Random, find: Find, trace: Callable[[str], None]) -> None:
        self.id = f"transactions {number}"
        self._rng = rng
        self._find = find
        self._cached_find = CachedFinder(find)
        self._trace = trace
        self.is_done = False
        self.outcomes: dict[int, TransactionOutcome] = {}
        self.values: dict[int, set[bytes]] = {}  # one for each partition
        self.moved: set[int] = set()  # transactions that commit the offset
        self._producer: ProducerIdentity | None = None

    async def write_until_done(self) -> None:
        """Run transactions one after the other; initialise the producer again after a failure."""
        while not self.is_done:
            await asyncio.sleep(self._rng.random() * 0.5)
            try:
                if self._producer is None:
                    await self._begin()
                elif self._rng.random() < 0.1:
                    await self._begin_beside(self._producer)
                else:
                    await self._transaction(self._producer)
            except (MainstemError, TimeoutError) as error:
                self._trace(f"{self.id} failed {_kind(error)}")
                self._producer = None

    async def finish(self) -> None:
        """End the open transaction, without faults."""
        await retry_until_settled(self._begin)

    async def _begin(self) -> None:
        node = self._coordinator()
        request = InitRequest(transactional_id=self.id, timeout_ms=TIMEOUT_MS)
        answer = await node.serve(partial(node.coordinators.transactions.init, request))
        self._producer = answer.producer

    async def _begin_beside(self, producer: ProducerIdentity) -> None:
        """Initialise the producer again while an old request is in flight, which must be fenced."""
        stray = asyncio.create_task(self._stray(producer))
        await asyncio.sleep(self._rng.random() * 0.05)
        try:
            await self._begin()
        finally:
            await stray

    async def _stray(self, producer: ProducerIdentity) -> None:
        try:
            await self._append_some(producer, self._next())
        except (MainstemError, TimeoutError) as error:
            self._trace(f"{self.id} strayed {_kind(error)}")

    async def _transaction(self, producer: ProducerIdentity) -> None:
        number = self._next()
        await self._append_some(producer, number)
        if self._rng.random() < 0.5:
            self.moved.add(number)
            await self._move(producer, number)
        is_commit = self._rng.random() < 0.7
        if is_commit:
            self.outcomes[number] = TransactionOutcome.UNKNOWN
        self._producer = await self._end(producer, is_commit=is_commit)
        if is_commit:
            self.outcomes[number] = TransactionOutcome.COMMITTED
        self._trace(f"{self.id} ended {number} {is_commit}")

    def _next(self) -> int:
        number = len(self.outcomes)
        self.outcomes[number] = TransactionOutcome.ABORTED  # until its end is asked for
        self.values[number] = set()
        return number

    async def _append_some(self, producer: ProducerIdentity, number: int) -> None:
        places = self._rng.sample(range(PARTITIONS), self._rng.randint(1, PARTITIONS))
        for partition in places:
            value = b"%s %d %d" % (self.id.encode(), number, partition)
            self.values[number].add(value)
            await self._append(producer, partition, value)

    async def _append(self, producer: ProducerIdentity, partition: int, value: bytes) -> None:
        node = self._find(TOPIC, partition)
        if node is None:
            raise _no_node()
        stamp = ProducerStamp(*producer, 0)  # every transaction has an epoch of its own
        batch = build_batch([Record(0, 1, b"k", value)], flags=TRANSACTIONAL_MASK, producer=stamp)
        adding = partial(
            node.coordinators.transactions.add_partitions,
            *(self.id, *producer, [(TOPIC, partition)]),
            verify_only=False,
        )
        [refusal] = await node.serve(adding)
        if refusal is not None:
            raise Unavailable(refusal, "it is not part of the transaction")
        if node.streams is None:
            raise _no_node()
        await node.serve(partial(node.streams.append, TOPIC, partition, batch, verified=True))

    async def _move(self, producer: ProducerIdentity, number: int) -> None:
        node = self._find(OFFSETS_TOPIC, 0)
        if node is None:
            raise _no_node()
        request = CommitRequest(group_id=self.id, offsets=(OffsetToCommit(TOPIC, 0, number),))
        moving = partial(
            node.coordinators.transactions.commit_offsets,
            self.id,
            producer,
            request,
            verify_only=False,
        )
        outcomes = await node.serve(moving)
        if any(outcomes):
            raise GuaranteeViolated(f"an offset commit is refused: {outcomes}")

    async def _end(self, producer: ProducerIdentity, *, is_commit: bool) -> ProducerIdentity:
        """Repeat a request until it is answered, as producers do."""
        request = EndRequest(transactional_id=self.id, producer=producer, commit=is_commit)
        while True:
            try:
                node = self._coordinator()
                return await node.serve(partial(node.coordinators.transactions.end, request))
            except (MainstemError, TimeoutError) as error:
                if self.is_done or (isinstance(error, MainstemError) and not error.retriable):
                    raise
            await asyncio.sleep(0.1)

    def _coordinator(self) -> SimNode:
        node = self._find(TRANSACTION_STATE_TOPIC, 0)
        if node is None:
            raise _no_node()
        return node

    async def look(self) -> None:
        """Check that the offset is that of the last committed transaction that set it."""
        last = max(
            (one for one in self.moved if self.outcomes[one] is TransactionOutcome.COMMITTED),
            default=-1,
        )
        found = await fetched(self._cached_find, self.id)
        if found < last or (found >= 0 and self.outcomes[found] is TransactionOutcome.ABORTED):
            raise GuaranteeViolated(f"the offset of {self.id} is {found}, not that of {last}")

    async def check_position(self, seen: set[bytes]) -> None:
        """Check, without faults, that the offset is that of the last visible transaction."""
        shown = [one for one in self.moved if self.values[one] <= seen]
        found = await fetched(self._cached_find, self.id)
        if found != max(shown, default=-1):
            raise GuaranteeViolated(
                f"the offset of {self.id} is {found}, not {max(shown, default=-1)}"
            )

    def check_seen(self, seen: set[bytes], *, is_end: bool) -> None:
        """Check that the visible records agree with the answers to the producer."""
        for number, status in self.outcomes.items():
            values = self.values[number]
            shown = values & seen
            if status is TransactionOutcome.ABORTED and shown:
                raise GuaranteeViolated(f"{self.id} {number} was aborted and {shown} is visible")
            if is_end and shown != values and (shown or status is TransactionOutcome.COMMITTED):
                raise GuaranteeViolated(
                    f"{self.id} {number} is {status}, and {shown} of {values} is visible"
                )


class CommittedReader:
    """Reads committed records repeatedly."""

    def __init__(self, rng: Random, find: Find, clients: list[SimTransactions]) -> None:
        self._rng = rng
        self._find = find
        self._clients = clients
        self.is_done = False
        self._asked: SimNode | None = None
        self._seen: dict[tuple[int, int], bytes] = {}
        self._read_before: dict[tuple[int, int], tuple[bytes, list[tuple[int, int]]]] = {}

    async def read_until_done(self) -> None:
        """Read partitions and offsets."""
        while not self.is_done:
            await asyncio.sleep(self._rng.random() * 2)
            try:
                for partition in range(PARTITIONS):
                    self._read(partition)
                seen = set(self._seen.values())
                for client in self._clients:
                    client.check_seen(seen, is_end=False)
                    await client.look()
            except (MainstemError, TimeoutError) as error:
                if not is_damage(error, self._asked):
                    _check_retriable(error)

    async def check_end(self) -> None:
        """Check everything at the end, without faults."""
        before, self._seen = self._seen, {}
        self._read_before.clear()
        try:
            for partition in range(PARTITIONS):
                self._read(partition)
        except MainstemError:
            self._seen |= before
            raise
        lost = {at: value for at, value in before.items() if self._seen.get(at) != value}
        if lost:
            raise GuaranteeViolated(f"visible records are lost: {lost}")
        seen = set(self._seen.values())
        if len(seen) != len(self._seen):
            raise GuaranteeViolated("a record of a transaction is visible twice")
        for client in self._clients:
            client.check_seen(seen, is_end=True)
            await client.check_position(seen)

    def _read(self, partition: int) -> None:
        node = self._asked = self._find(TOPIC, partition)
        if node is None or node.streams is None or node.process.is_paused:
            raise _no_node()
        reader = node.streams.reader(TOPIC, partition)
        offset = reader.start_offset
        while True:
            part = reader.read(offset, max_bytes=10**6, committed_only=True, min_one=True)
            if part is None:
                return
            found = part.read(), reader.aborted_transactions(offset, part.until_offset)
            if self._read_before.get((partition, offset)) != found:
                self._read_before[partition, offset] = found
                self._see(partition, *found)
            offset = part.until_offset

    def _see(self, partition: int, data: bytes, dropped: list[tuple[int, int]]) -> None:
        for at, value in shown_of(data, dropped):
            if self._seen.setdefault((partition, at), value) != value:
                raise GuaranteeViolated(
                    f"{TOPIC}-{partition} {at} was {self._seen[partition, at]!r}"
                )


def shown_of(data: bytes, aborted: list[tuple[int, int]]) -> list[tuple[int, bytes]]:
    """Offsets and values of the records that were not aborted, without markers."""
    found = list[tuple[int, bytes]]()
    coming = sorted(aborted, key=lambda each: each[1], reverse=True)
    gone: set[int] = set()
    at = 0
    for header, _ in batches_of(data):
        while coming and coming[-1][1] < header.until_offset:
            gone.add(coming.pop()[0])
        if header.is_control:
            gone.discard(header.producer_id)
        elif header.producer_id not in gone:
            found += _values(data[at : at + header.size])
        at += header.size
    return found


@lru_cache(8_192)
def _values(batch: bytes) -> list[tuple[int, bytes]]:
    """Offsets and values of a batch; cached, since the same batches are read repeatedly."""
    return [(record.offset, record.value or b"") for record in records_of(batch)]


async def fetched(find: CachedFinder, group: str) -> int:
    """The committed offset of a group from its coordinator; -1 if none."""
    node = find(OFFSETS_TOPIC, 0)
    if node is None:
        raise _no_node()
    try:
        coordinator = node.coordinators.groups
        fetching = partial(coordinator.fetch_offsets, group, [(TOPIC, 0)], stable=True)
        [found] = await node.serve(fetching)
    except (MainstemError, TimeoutError):
        find.forget(OFFSETS_TOPIC, 0)
        raise
    if found.outcome is not None:
        raise Unavailable(found.outcome, "an open transaction may move it")
    return found.committed.offset


async def retry_until_settled(act: Callable[[], Awaitable[None]]) -> None:
    """Retry until coordinators have been loaded after the faults."""
    while True:
        try:
            await act()
        except (MainstemError, TimeoutError) as error:
            _check_retriable(error)
            await asyncio.sleep(0.5)
        else:
            return


def _kind(error: Exception) -> str:
    """The kind of an error, without the folder that it may name."""
    return error.code.name if isinstance(error, MainstemError) else type(error).__name__


def _check_retriable(error: Exception) -> None:
    if isinstance(error, MainstemError) and not error.retriable:
        raise GuaranteeViolated(f"refused permanently: {error}") from error


def _no_node() -> Unavailable:
    return Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, "no node is available")
