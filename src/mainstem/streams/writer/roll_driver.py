"""Rolls from one range to the next without stopping writes.

    new range takes the appends ──▶ old one synced ──▶ sealed ──▶ catalogue has it ──▶ acks resume

Nothing in the new range is committed before the catalogue holds it, so a crash in between loses
nothing that was acknowledged: the old range is still the open one, and ends where it ended.

A full disk and a catalogue without an answer delay a roll and are waited for; only a
failed sync and a broken invariant stop the node.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from uuid import uuid4

from mainstem.log.disk.group_commit import GroupCommit
from mainstem.log.range_log import RangeLog
from mainstem.log.store import LogStore
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import Offset, RangeIndex
from mainstem.model.metadata import Range, Stream
from mainstem.placement.changes import commands
from mainstem.placement.service import PlacementService
from mainstem.streams.failover.seal_driver import submit_until_decided
from mainstem.streams.failover.sealing import SealRequest
from mainstem.streams.failover.state_recovery import range_log
from mainstem.streams.storage_retry_driver import RETRY_S, refusal_of, retried
from mainstem.streams.writer.stream_driver import StreamWriter

log = logging.getLogger(__name__)


class RollDriver:
    """Rolls streams whose open range is full."""

    def __init__(
        self,
        placement: PlacementService,
        store: LogStore,
        commits: GroupCommit,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.placement = placement
        self._store = store
        self._commits = commits
        self._on_fatal = on_fatal
        self._rolling: dict[StreamWriter, asyncio.Task[None]] = {}

    def roll(self, stream: StreamWriter) -> None:
        """Start the next range of a stream, unless that is under way."""
        if stream in self._rolling or stream.closed is not None:
            return
        task = asyncio.get_running_loop().create_task(self._roll(stream))
        self._rolling[stream] = task
        task.add_done_callback(lambda done: self._rolled(stream, done))

    async def settled(self, timeout_s: float | None = None) -> None:
        """Wait until no roll is under way.

        Without a leader a seal is never decided: after ``timeout_s`` the roll is given
        up, and the next writer of the stream seals the range.
        """
        if not self._rolling:
            return
        _, late = await asyncio.wait(self._rolling.values(), timeout=timeout_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _roll(self, stream: StreamWriter) -> None:
        if stream.replication is not None:
            await stream.replication.roll()
            return
        topic = self.placement.catalogue.need_topic(stream.id.topic)
        last = stream.known.last
        following = Range(
            index=RangeIndex(last.index + 1),
            start=Offset(stream.next_offset),
            epoch=stream.known.epoch,
            replicas=last.replicas,
        )
        snapshot = stream.state.snapshot()
        old = stream.begin_range(
            range_log(self._store, topic, stream.known, following, stream.settings, snapshot)
        )
        await self._synced(old)
        if stream.closed is not None:
            return
        name = f"the roll of {stream.topic}-{stream.id.partition}"
        await retried(old.seal, name, lambda: stream.closed is not None)
        end = commands.RangeEnd(
            stream.id,
            stream.known.epoch,
            last.index,
            Offset(old.written_end),
            size_bytes=old.size_bytes,
            max_timestamp=old.max_timestamp,
            max_timestamp_offset=old.offset_of_max_timestamp,
        )
        known = await self._opened(stream, SealRequest(uuid4().hex, end, ()))
        if known is None:
            return
        if len(known.last.replicas) > 1 and stream.closed is None:
            # From here on other nodes hold the stream as well: what they lack is not committed.
            assert stream.replicate is not None, "a node that knows others keeps their replicas"
            stream.known = known
            begin = partial(stream.replicate, stream)
            await retried(begin, name, lambda: stream.closed is not None)
        stream.range_known(known)

    async def _opened(self, stream: StreamWriter, request: SealRequest) -> Stream | None:
        """The stream with its next range, once the catalogue has decided; None: it is closed."""
        if stream.closed is not None:
            return None
        reason: MainstemError
        outcome = None
        try:
            outcome = await submit_until_decided(self, request)
        except MainstemError as error:  # the topic was deleted, or the node stops
            reason = error
        else:
            reason = Unavailable(ErrorCode.NOT_WRITER, "another epoch of the stream has started")
        if outcome is not None and outcome.opened is not None:
            return outcome.opened
        if stream.closed is None:
            stream.close(reason)
        return None

    def now_ms(self) -> int:
        """Milliseconds of the loop's clock."""
        return int(asyncio.get_running_loop().time() * 1000)

    async def _synced(self, old: RangeLog) -> None:
        if old.synced_end == old.written_end:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle() -> None:
            if not done.done():
                done.set_result(None)

        self._commits.request(old, settle)
        await done

    def _rolled(self, stream: StreamWriter, task: asyncio.Task[None]) -> None:
        del self._rolling[stream]
        if task.cancelled() or stream.closed is not None:
            return
        error = task.exception()
        name = f"{stream.topic}-{stream.id.partition}"
        if error is not None and refusal_of(error) is not None:
            # Nothing was started: later refusals of storage are waited for where they occur.
            log.warning("%s is not rolled now: %s", name, error)
            asyncio.get_running_loop().call_later(RETRY_S, self._again, stream)
        elif error is not None:
            # Acknowledgements of the stream are held back; only a restart can recover it cleanly.
            log.error("%s cannot roll: %s", name, error)
            self._on_fatal(error)
        elif self._is_due(stream):
            self.roll(stream)  # filled again, or another replica lost, meanwhile

    def _again(self, stream: StreamWriter) -> None:
        if self._is_due(stream):
            self.roll(stream)

    def _is_due(self, stream: StreamWriter) -> bool:
        if stream.closed is not None:
            return False
        return stream.is_full or (stream.replication is not None and stream.replication.needs_roll)
