"""One shard and the stream that keeps it: load, store, wait until it is safe.

Promises: a request never sees a shard before all its facts are replayed; facts are replayed in the
order in which they are stored; nothing is told to anybody before the facts it rests on are
committed; what is told from memory alone, also a refusal, is told only while no other node can have
stored newer facts.
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
# Reads that are repeated: the files are being copied, or this node's disk refuses for now.
_AWAITED = STORAGE_RECOVERS | {ErrorCode.WRITER_UNAVAILABLE, ErrorCode.STORAGE_FAILED}

_log = logging.getLogger(__name__)

FactT = TypeVar("FactT")
ShardT = TypeVar("ShardT", bound=ReplicatedState)


def as_coordinator_error(error: MainstemError) -> MainstemError:
    """What clients of a coordinator understand when its stream cannot be written."""
    if error.retriable:
        return Unavailable(
            ErrorCode.COORDINATOR_UNAVAILABLE,
            str(error),
            subject=error.subject,
            remedy=error.remedy,
        )
    return error


class LiveShard(Generic[ShardT, FactT]):
    """A shard in service, or on its way there."""

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
        """Why requests cannot be served, if they cannot."""
        return self._refusal

    def retire(self, refusal: MainstemError) -> None:
        """Serve no more: another node does."""
        self._refusal = refusal
        self._is_retired = True

    async def load(self) -> None:
        """Replay everything that is stored; between batches others get their turn.

        Files that are being copied from other nodes are waited for, and so is a disk that refuses
        to be read: a shard that gave up would be served by nobody until its stream moves.
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
        """Serving half a shard would hand out old states: what it keeps stays unavailable."""
        _log.error("partition %d cannot be loaded: %s", self.partition, error)
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
            raise Corrupt(f"no whole batch at offset {offset}")
        return reached

    async def _stored(self, offset: int) -> bytes | None:
        pause_s = _PAUSE_S
        while True:
            try:
                # Also what waits for the outcome of a transaction: pending facts are facts.
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
                    _log.info("partition %d waits to be loaded: %s", self.partition, error)
                else:  # until it was copied anew from another node, or can be read again
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
        """The offset after the last fact that is safe."""
        return self.stream.committed

    def append(self, facts: Sequence[FactT], wall_ms: int) -> Iterator[FactT]:
        """Store facts; each is handed out, to be replayed, once it is stored."""
        for piece, batch in batches(facts, wall_ms, self._codec):
            self._written = self.stream.append(batch)
            yield from piece

    def store(self, facts: Sequence[FactT], wall_ms: int) -> None:
        """Append and replay; raises where the stream refuses, what was appended before counts."""
        for fact in self.append(facts, wall_ms):
            self.shard.replay(fact)

    def end_transaction(self, producer: ProducerIdentity, marker: TransactionMarker) -> None:
        """Write the marker of a transaction whose facts wait here, and replay that it ended."""
        self._written = self.stream.write_marker(*producer, marker)
        fact = self._codec.ended(producer, commit=marker.commit)
        if fact is not None:
            self.shard.replay(fact)

    def when_safe(self, settled: Callable[[MainstemError | None], None]) -> bool:
        """Whether all that is stored is committed; if not, ``settled`` is called once it is."""
        try:
            return self.stream.when_committed(self._written, settled)
        except MainstemError as error:
            # Too many wait already. Whoever asks here is owed an answer all the same.
            settled(error)
            return False

    @property
    def lapse(self) -> MainstemError | None:
        """Why another node may keep this shard by now and know more; None as long as none can."""
        if self._is_retired:
            return self._refusal
        lapsed = self.stream.lapsed
        reason = None if lapsed is None else lapsed()
        if reason is None:
            return None
        return Unavailable(ErrorCode.NOT_COORDINATOR, str(reason), subject=str(self.partition))

    def check_fresh(self) -> None:
        """Refuse to answer from memory alone while another node may know more."""
        lapse = self.lapse
        if lapse is not None:
            raise lapse

    def check_fresh_or_wait(self) -> None:
        """As ``check_fresh``, for who is to ask here again unless another node is known to serve.

        The doubt may pass, and librdkafka does not repeat an OffsetFetch that was refused with
        NOT_COORDINATOR: it would read nothing until its next rebalance.
        """
        lapse = self.lapse
        if lapse is None:
            return
        if self._is_retired:
            raise lapse
        raise Unavailable(ErrorCode.COORDINATOR_LOADING, str(lapse), subject=str(self.partition))

    @contextmanager
    def judging(self) -> Iterator[None]:
        """A refusal rests on what is known here: only who surely keeps the shard may tell it."""
        try:
            yield
        except MainstemError:
            self.check_fresh()
            raise

    async def safe(self, *, has_stored: bool = True) -> None:
        """Wait until all that is stored now is committed.

        Replicas refuse the facts of a node that was replaced; whoever has stored none
        (``has_stored``) is refused while another node may know more.
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
            self.check_fresh()  # now, not when it was asked: the process may have been paused
