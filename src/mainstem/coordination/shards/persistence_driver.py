"""One shard and the stream that stores it: load, append, wait for the commit.

Guarantees: no request is served before all facts of the shard are replayed; facts are replayed in
the order in which they are stored; no answer is sent before the facts it depends on are committed;
an answer from memory alone, including an error, is sent only while no other node can have stored
newer facts.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from mainstem.coordination.shards.fact_log import FactCodec, batches, facts_in
from mainstem.coordination.shards.state_machine import (
    InternalStream,
    ReplicatedState,
)
from mainstem.coordination.transactions.state import ProducerIdentity
from mainstem.model.errors import (
    STORAGE_RECOVERS,
    Corrupt,
    ErrorCode,
    MainstemError,
    Unavailable,
)
from mainstem.model.limits import KIB
from mainstem.streams.producers.transaction_markers import TransactionMarker

_LOAD_BYTES = 256 * KIB
_PAUSE_S = 0.05
_PAUSE_S_MAX = 2.0
# Errors after which a read is retried: files are being copied, or the disk fails temporarily.
_AWAITED = STORAGE_RECOVERS | {ErrorCode.WRITER_UNAVAILABLE, ErrorCode.STORAGE_FAILED}

_log = logging.getLogger(__name__)

FactT = TypeVar("FactT")
ShardT = TypeVar("ShardT", bound=ReplicatedState)


def as_coordinator_error(error: MainstemError) -> MainstemError:
    """Map a write error of the stream to an error that clients of a coordinator understand."""
    if error.retriable:
        return Unavailable(
            ErrorCode.COORDINATOR_UNAVAILABLE,
            str(error),
            subject=error.subject,
            remedy=error.remedy,
        )
    return error


class LiveShard(Generic[ShardT, FactT]):
    """A shard that is loaded or being loaded."""

    def __init__(
        self, shard: ShardT, codec: FactCodec[FactT], stream: InternalStream, partition: int
    ) -> None:
        self.shard = shard
        self._codec = codec
        self.partition = partition
        self._is_retired = False
        self.stream = stream
        self._written = stream.committed
        self._refusal: MainstemError | None = Unavailable(
            ErrorCode.COORDINATOR_LOADING, subject=str(partition)
        )

    @property
    def is_ready(self) -> bool:
        """Whether requests may be served."""
        return self._refusal is None

    @property
    def refusal(self) -> MainstemError | None:
        """Why requests cannot be served, or None."""
        return self._refusal

    def retire(self, refusal: MainstemError) -> None:
        """Stop serving: another node coordinates the shard."""
        self._refusal = refusal
        self._is_retired = True

    async def load(self) -> None:
        """Replay everything that is stored, yielding to other tasks between batches.

        Waits for files that are being copied from other nodes and for a disk that cannot be read:
        if loading gave up, no node would serve the shard until its stream moves.
        """
        try:
            offset = self.stream.start_offset
            while offset < self.stream.committed and not self._is_retired:
                reached = await self._load_some(offset)
                if reached is None:
                    break
                offset = reached
                await asyncio.sleep(0)
        except MainstemError as error:
            if self._is_retired:
                return
            self._refuse(error)
            return
        if not self._is_retired:
            self._written = self.stream.committed
            self._refusal = None

    def _refuse(self, error: MainstemError) -> None:
        """Make the shard unavailable: a partly loaded shard would answer with outdated state."""
        _log.error("coordinator partition %d cannot be loaded: %s", self.partition, error)
        self._refusal = Unavailable(
            ErrorCode.COORDINATOR_UNAVAILABLE, str(error), subject=str(self.partition)
        )

    async def _load_some(self, offset: int) -> int | None:
        stored = await self._stored(offset)
        if stored is None:
            return None
        reached = offset
        for until, facts in facts_in(stored, self._codec):
            for fact in facts:
                self.shard.replay(fact)
            reached = until
        if reached <= offset:
            raise Corrupt(f"no complete batch at offset {offset}")
        return reached

    async def _stored(self, offset: int) -> bytes | None:
        pause_s = _PAUSE_S
        while True:
            try:
                # Includes records of open transactions: pending facts are facts.
                found = self.stream.read(
                    max(offset, self.stream.start_offset),
                    max_bytes=_LOAD_BYTES,
                    committed_only=False,
                    min_one=True,
                )
                return None if found is None else found.read()
            except (Unavailable, Corrupt) as error:
                is_awaited = isinstance(error, Corrupt) or error.code in _AWAITED
                if not is_awaited or self._is_retired:
                    raise
                if error.code is ErrorCode.WRITER_UNAVAILABLE:
                    _log.info(
                        "coordinator partition %d is waiting to be loaded: %s",
                        self.partition,
                        error,
                    )
                else:  # until it is copied again from another node, or can be read again
                    self._refuse(error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    @property
    def epoch(self) -> int:
        """The epoch under which this node writes the stream."""
        return self.stream.epoch

    @property
    def written(self) -> int:
        """The offset after the last fact that was stored."""
        return self._written

    @property
    def committed(self) -> int:
        """The offset after the last committed fact."""
        return self.stream.committed

    def append(self, facts: Sequence[FactT], wall_ms: int) -> Iterator[FactT]:
        """Store facts; yields each once it is stored, for the caller to replay."""
        for piece, batch in batches(facts, wall_ms, self._codec):
            self._written = self.stream.append(batch)
            yield from piece

    def store(self, facts: Sequence[FactT], wall_ms: int) -> None:
        """Append and replay; if the stream raises, facts appended before stay in effect."""
        for fact in self.append(facts, wall_ms):
            self.shard.replay(fact)

    def end_transaction(self, producer: ProducerIdentity, marker: TransactionMarker) -> None:
        """Write the marker of a transaction with pending facts in this shard, and replay it."""
        self._written = self.stream.write_marker(*producer, marker)
        fact = self._codec.ended(producer, commit=marker.commit)
        if fact is not None:
            self.shard.replay(fact)

    def when_safe(self, settled: Callable[[MainstemError | None], None]) -> bool:
        """Whether everything stored is committed; if not, ``settled`` is called once it is."""
        try:
            return self.stream.when_committed(self._written, settled)
        except MainstemError as error:
            # Too many callbacks wait already, but the request still needs an answer.
            settled(error)
            return False

    @property
    def lapse(self) -> MainstemError | None:
        """Why another node may coordinate this shard with newer facts; None while none can."""
        if self._is_retired:
            return self._refusal
        lapsed = self.stream.lapsed
        reason = None if lapsed is None else lapsed()
        if reason is None:
            return None
        return Unavailable(ErrorCode.NOT_COORDINATOR, str(reason), subject=str(self.partition))

    def check_fresh(self) -> None:
        """Refuse to answer from memory alone while another node may have newer facts."""
        lapse = self.lapse
        if lapse is not None:
            raise lapse

    def check_fresh_or_wait(self) -> None:
        """Like ``check_fresh``, but clients retry here unless another node is known to serve.

        The condition may pass, and librdkafka does not repeat an OffsetFetch that was refused
        with NOT_COORDINATOR: it would read nothing until its next rebalance.
        """
        lapse = self.lapse
        if lapse is None:
            return
        if self._is_retired:
            raise lapse
        raise Unavailable(ErrorCode.COORDINATOR_LOADING, str(lapse), subject=str(self.partition))

    @contextmanager
    def check_fresh_on_error(self) -> Iterator[None]:
        """Raise errors only while this node surely coordinates the shard: its state causes them."""
        try:
            yield
        except MainstemError:
            self.check_fresh()
            raise

    async def safe(self, *, has_stored: bool = True) -> None:
        """Wait until everything stored so far is committed.

        Replicas refuse the facts of a node that was replaced. A request that stored none
        (``has_stored`` is False) is refused while another node may have newer facts.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(error: MainstemError | None) -> None:
            if not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(as_coordinator_error(error))

        if not self.when_safe(settled):
            await future
        if not has_stored:
            self.check_fresh()  # now, not at arrival: the process may have been paused
