"""Producers and readers of ``simulator``, and what was acknowledged to them."""

import asyncio
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Final, NamedTuple

from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.records.record import ProducerStamp, Record, build_batch, records_of
from mainstem.testing.simulation.cluster.node import SimNode

STALE_METADATA_CLIENT: Final = 0
FORMER_CHANCE: Final = 0.1  # of a request of that client to go to the former writer
READER: Final = -1
FORBIDDEN: Final = b"too large "  # prefix of values that must not be stored


class GuaranteeViolated(AssertionError):
    """A guarantee was violated."""


class Trace:
    """Digest of all events and their times: the same for every run of a seed."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=8)

    @property
    def digest(self) -> str:
        """The digest of the trace."""
        return self._hash.hexdigest()

    def note(self, what: str) -> None:
        """Record an event."""
        now = asyncio.get_running_loop().time()
        self._hash.update(f"{now:.6f} {what}\n".encode())


class WriterMetadata(NamedTuple):
    """Writer and epoch of the stream; ``node`` is None if the writer is not reachable."""

    epoch: int
    node: SimNode | None


class SimClients:
    """Producers that write every batch until it is acknowledged, and a reader.

    They use the writer with the newest epoch in any metadata they received, as Kafka clients do;
    the first one uses the last metadata it received, as simpler clients do, and sometimes the
    writer before.

    Args:
        rng: decides delays.
        metadata: returns the writer of the stream, as one of the nodes knows it.
        nearby: returns a serving node to read from; None: read from the writer.
        trace: records events.
    """

    def __init__(
        self,
        rng: Random,
        metadata: Callable[[], WriterMetadata],
        nearby: Callable[[], SimNode | None],
        trace: Callable[[str], None],
    ) -> None:
        self.rng = rng
        self._trace = trace
        self.acked: dict[int, bytes] = {}
        self.seen: dict[int, bytes] = {}
        self.is_done = False
        self._metadata = metadata
        self._nearby = nearby
        self._epochs: dict[int, int] = {}
        self._writers: tuple[SimNode | None, SimNode | None] = None, None  # the last, the former
        self.acked_until = 0  # the offset after the last that was acknowledged
        self._read: dict[int, bytes] = {}
        self._next_value = 0

    async def write_until_done(self, number: int) -> None:
        """Write batch after batch, each until it is acknowledged."""
        sequence = 0
        while not self.is_done:
            await asyncio.sleep(self.rng.random() * 0.2)
            count = self.rng.randint(1, 3)
            values = [b"%d" % (self._next_value + at) for at in range(count)]
            self._next_value += count
            stamp = ProducerStamp(number, 0, sequence)
            base = await self.write(values, stamp)
            if base is None:
                return
            sequence += count
            self._trace(f"{number} acknowledged {base} {values}")
            for at, value in enumerate(values):
                if self.acked.setdefault(base + at, value) != value:
                    raise GuaranteeViolated(f"offset {base + at} was acknowledged twice")
            self.acked_until = max(self.acked_until, base + count)

    async def write(self, values: list[bytes], stamp: ProducerStamp) -> int | None:
        """Write a batch until it is acknowledged; None if the scenario ended before."""
        records = [Record(0, 1, b"k", value) for value in values]
        while True:
            writer = self._turn_to(stamp.producer_id)
            try:
                if writer is not None and (streams := writer.streams) is not None:
                    batch = build_batch(records, producer=stamp)
                    return await writer.serve(partial(streams.append, "t", 0, batch))
            except (MainstemError, TimeoutError) as error:
                self._check_refusal(error, stamp)
            if self.is_done:
                return None
            await asyncio.sleep(0.1)

    def _turn_to(self, number: int) -> SimNode | None:
        """The node that a client considers the writer; None if it has to request metadata again."""
        metadata = self._metadata()
        if number == STALE_METADATA_CLIENT:
            last, former = self._writers
            if metadata.node not in (None, last):
                self._writers = metadata.node, last
                former = last
            return former if self.rng.random() < FORMER_CHANCE else metadata.node
        if metadata.epoch < self._epochs.get(number, 0):
            return None
        self._epochs[number] = metadata.epoch
        return metadata.node

    def _check_refusal(self, error: Exception, stamp: ProducerStamp) -> None:
        if isinstance(error, MainstemError) and not error.retriable:
            raise GuaranteeViolated(f"a retry of {stamp} is refused: {error}")

    async def read_until_done(self) -> None:
        """Read everything repeatedly."""
        while not self.is_done:
            await asyncio.sleep(self.rng.random())
            near = self._nearby()
            node = self._turn_to(READER) if near is None else near
            if node is None or node.process.is_paused:
                continue
            try:
                self.read(node)
            except MainstemError as error:
                if not error.retriable and not is_damage(error, node):
                    raise GuaranteeViolated(f"cannot be read: {error}") from error

    def check_all(self, start: int, nodes: list[SimNode]) -> None:
        """Check, without faults, that everything acknowledged from ``start`` on is stored once.

        The first of the nodes is the writer; the others return the same records, or none.
        """
        promised = {**self.seen, **self.acked}
        self.seen.clear()
        self._read.clear()
        writer, *others = nodes
        self.read(writer)
        for node in others:
            try:
                self.read(node)
            except MainstemError as error:
                # A replica in limbo is readable once its range is sealed: readers use the writer.
                if not error.retriable:
                    raise GuaranteeViolated(f"cannot be read from {node.id}: {error}") from error
        for offset, value in promised.items():
            if offset >= start and self.seen.get(offset) != value:
                raise GuaranteeViolated(f"{value!r} at {offset} is lost: {self.seen.get(offset)!r}")
        values = list(self.seen.values())
        if len(values) != len(set(values)):
            raise GuaranteeViolated("a batch was stored twice")

    def read(self, node: SimNode) -> None:
        """Read all committed records from a node: the writer, or a replica."""
        assert node.streams is not None, "a node that serves"
        stream = node.streams.reader("t", 0)
        offset = stream.start_offset
        while True:
            part = stream.read(offset, max_bytes=10**6, committed_only=False, min_one=True)
            if part is None:
                return
            data, before = part.read(), self._read.get(offset, b"")
            # Identical bytes need not be decoded again: mostly only the end is new.
            fresh = data[len(before) :] if data.startswith(before) else data
            self._read[offset] = data
            for batch in _batches(fresh):
                self._see(batch)
            offset = part.until_offset

    def _see(self, batch: bytes) -> None:
        for record in records_of(batch):
            value = record.value or b""
            if value.startswith(FORBIDDEN):
                raise GuaranteeViolated(f"a record that is too large is stored at {record.offset}")
            if self.seen.setdefault(record.offset, value) != value:
                was = self.seen[record.offset]
                raise GuaranteeViolated(f"offset {record.offset} was {was!r} and is {value!r}")


def is_damage(error: Exception, node: SimNode | None) -> bool:
    """Whether a read of a node fails because its files were damaged."""
    if not isinstance(error, MainstemError) or error.code is not ErrorCode.CORRUPT:
        return False
    return node is not None and node.is_damaged


def _batches(data: bytes) -> list[bytes]:
    at, found = 0, list[bytes]()
    while at < len(data):
        until = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        found.append(data[at:until])
        at = until
    return found
