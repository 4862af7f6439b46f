"""From one range to the next while writing goes on.

    new range takes the appends ──▶ old one synced ──▶ sealed ──▶ catalogue knows ──▶ acks go on

Nothing in the new range is committed before the catalogue holds it, so a crash in between loses
nothing that was acknowledged: the old range is still the open one, and ends where it ended.
"""

import asyncio
import logging
from collections.abc import Callable
from uuid import uuid4

from mainstem.log.group_commit import GroupCommit
from mainstem.log.range_log import RangeLog
from mainstem.log.store import LogStore
from mainstem.model.ids import Offset, RangeIndex
from mainstem.model.metadata import Range
from mainstem.placement import records
from mainstem.placement.service import PlacementService
from mainstem.streams.recovery import range_log
from mainstem.streams.writer_driver import StreamWriter

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
        self._placement = placement
        self._store = store
        self._commits = commits
        self._on_fatal = on_fatal
        self._rolling: dict[StreamWriter, asyncio.Task[None]] = {}

    def roll(self, stream: StreamWriter) -> None:
        """Begin the next range of a stream, unless that is under way."""
        if stream in self._rolling or stream.closed is not None:
            return
        task = asyncio.get_running_loop().create_task(self._roll(stream))
        self._rolling[stream] = task
        task.add_done_callback(lambda done: self._rolled(stream, done))

    async def settled(self, patience_s: float | None = None) -> None:
        """Wait until no roll is under way.

        Where nobody is left to decide a seal it would never be: after ``patience_s`` it is given
        up, and who writes the stream next seals the range.
        """
        if not self._rolling:
            return
        _, late = await asyncio.wait(self._rolling.values(), timeout=patience_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _roll(self, stream: StreamWriter) -> None:
        if stream.replication is not None:
            await stream.replication.roll()
            return
        topic = self._placement.catalogue.need_topic(stream.id.topic)
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
        old.seal()
        end = records.RangeEnd(
            stream.id,
            stream.known.epoch,
            last.index,
            Offset(old.written_end),
            size_bytes=old.size_bytes,
            max_timestamp=old.max_timestamp,
            max_timestamp_offset=old.offset_of_max_timestamp,
        )
        known = await self._placement.submit(records.SealAndCreate(uuid4().hex, end))
        if len(known.last.replicas) > 1 and stream.closed is None:
            # From here on other nodes hold the stream as well: what they lack is not committed.
            assert stream.replicate is not None, "a node that knows others keeps their replicas"
            stream.known = known
            stream.replicate(stream)
        stream.range_known(known)

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
        if error is not None:
            # Acknowledgements of the stream are held back; only a restart can take it up cleanly.
            log.error("stream %s-%d cannot roll: %s", stream.topic, stream.id.partition, error)
            self._on_fatal(error)
        elif stream.is_full or (stream.replication is not None and stream.replication.wants_roll):
            self.roll(stream)  # filled again, or another replica lost, meanwhile
