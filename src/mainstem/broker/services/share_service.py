"""Share groups on this node: fetches that lock records, acknowledgements and offsets.

ShareFetch ─▶ session ─▶ acknowledgements, stored ─▶ lock records ─▶ answer
nothing there? wait for the stream to
move or for records that are released
"""

import asyncio
import logging
from collections.abc import Hashable, Sequence
from typing import Final

from mainstem.broker.api.broker import Streams
from mainstem.broker.services.share_batches import batches_to_share, cut_to
from mainstem.broker.services.share_offsets_service import ShareOffsets
from mainstem.broker.services.share_partition_service import OpenSharePartition, SharePartitions
from mainstem.coordination.share.partition import AcquireLimit
from mainstem.coordination.share.requests import (
    SESSION_FINAL,
    Acknowledgements,
    DescribedShareGroup,
    ShareAcknowledgeAnswer,
    ShareAcknowledgeCall,
    ShareAnswer,
    ShareFetchAnswer,
    ShareFetchCall,
    ShareFetched,
    ShareHeartbeat,
    ShareOffset,
    ShareOffsetsDeleted,
    ShareOffsetToAlter,
)
from mainstem.coordination.share.service import ShareGroupCoordinator
from mainstem.coordination.share.sessions import ShareSession, ShareSessions
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import StreamId
from mainstem.model.limits import (
    FETCH_RESPONSE_BYTES_MAX,
    FETCH_WAIT_MS_MAX,
    GROUP_NAME_LENGTH_MAX,
    MIB,
)

# Read at a time from one partition: members need a few hundred records, not the whole log.
READ_BYTES: Final = 1 * MIB
PARTITIONS_PER_SESSION_MAX: Final = 100_000
# Consecutive markers and aborted transactions that one fetch skips.
_PASSED_OVER_MAX: Final = 100

Refusals = dict[StreamId, MainstemError | None]

# Errors that clients handle in a ShareFetch response. On any other error the partition is returned
# without records, because clients would treat it as fatal.
_REPORTED: Final = frozenset(
    {
        ErrorCode.NOT_WRITER,
        ErrorCode.RANGE_SEALED,
        ErrorCode.SHUTTING_DOWN,
        ErrorCode.FENCED_EPOCH,
        ErrorCode.UNKNOWN_EPOCH,
        ErrorCode.UNKNOWN_TOPIC,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_AUTHORIZED,
        ErrorCode.STORAGE_FAILED,
        ErrorCode.CORRUPT,
    }
)
# How long a fetch waits before it retries a partition that failed.
_PAUSE_S: Final = 0.1

_log = logging.getLogger(__name__)


class ShareService:
    """The ``ShareGroups`` of one node.

    Args:
        streams: where records are read.
        members: the groups that this node coordinates.
        partitions: the share partitions of this node.
        offsets: the offsets of groups.
    """

    def __init__(
        self,
        streams: Streams,
        members: ShareGroupCoordinator,
        partitions: SharePartitions,
        offsets: ShareOffsets,
    ) -> None:
        self._streams = streams
        self._members = members
        self._partitions = partitions
        self._offsets = offsets
        self.is_stopping = False
        self.fetches: set[_Fetch] = set()
        self._configs = members.configs
        self._sessions = ShareSessions(
            self._configs.settings.sessions_max, PARTITIONS_PER_SESSION_MAX
        )

    async def stop(self) -> None:
        """End all waiting fetches, and store what is not stored yet."""
        self.is_stopping = True
        for fetch in self.fetches:
            fetch.wake()
        await self._partitions.stop()

    async def heartbeat(self, request: ShareHeartbeat) -> ShareAnswer:
        """Join, keep alive or leave; the member's epoch, and its partitions if they changed."""
        return await self._members.heartbeat(request)

    def describe(self, group_id: str) -> DescribedShareGroup:
        """Describe one share group."""
        return self._members.describe(group_id)

    async def fetch(self, request: ShareFetchCall) -> ShareFetchAnswer:
        """Take acknowledgements, then lock records for the member.

        Waits as long as the request allows.
        """
        _check_names(request.group_id, request.member_id)
        session = self._sessions.fetching(request)
        refusals = await self._acknowledge(request, request.acknowledgements)
        fetched: dict[StreamId, ShareFetched] = {}
        if request.session_epoch == SESSION_FINAL:
            self._close(session)
        else:
            if request.forgotten:
                for live in self._partitions.of_group(request.group_id):
                    self._drop_unread(live)
            if request.max_records > 0 and not request.renews:
                fetched = await _Fetch(self, request, session).run()
        for stream, refusal in refusals.items():
            found = fetched.get(stream, ShareFetched(stream))
            fetched[stream] = ShareFetched(
                stream, found.records, found.acquired, found.error, refusal
            )
        lock_ms = self._configs.rules(request.group_id).lock_duration_ms
        return ShareFetchAnswer(lock_ms, list(fetched.values()))

    async def acknowledge(self, request: ShareAcknowledgeCall) -> ShareAcknowledgeAnswer:
        """Take acknowledgements; returns once they are stored."""
        _check_names(request.group_id, request.member_id)
        session = self._sessions.acknowledging(request)
        refusals = await self._acknowledge(request, request.acknowledgements)
        if request.session_epoch == SESSION_FINAL:
            self._close(session)
        lock_ms = self._configs.rules(request.group_id).lock_duration_ms
        return ShareAcknowledgeAnswer(lock_ms, list(refusals.items()))

    def disconnected(self, connection: Hashable) -> None:
        """Close the sessions of an ended connection and release their records."""
        for session in self._sessions.of_connection(connection):
            self._close(session)

    async def offsets(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]] | None
    ) -> Sequence[ShareOffset]:
        """A group's offsets, in the given partitions or (None) in all that it has read."""
        return await self._offsets.shown(group_id, topics)

    async def alter_offsets(
        self, group_id: str, wanted: Sequence[ShareOffsetToAlter]
    ) -> Sequence[ShareOffset]:
        """Set offsets of a group without members; one result for each, in order."""
        outcomes = await self._offsets.altered(group_id, wanted)
        self._partitions.drop_group(group_id)
        return outcomes

    async def delete_offsets(
        self, group_id: str, topics: Sequence[str]
    ) -> Sequence[ShareOffsetsDeleted]:
        """Delete offsets of a group without members, by topic."""
        outcomes = await self._offsets.deleted(group_id, topics)
        self._partitions.drop_group(group_id)
        return outcomes

    async def opened(
        self, request: ShareFetchCall, stream: StreamId
    ) -> OpenSharePartition | MainstemError:
        """A share partition that the member may read, or why not."""
        try:
            self._check_right(request, stream)
            return await self._partitions.open(request.group_id, stream)
        except MainstemError as error:
            return error

    def has(self, session: ShareSession) -> bool:
        """Whether a session is still open."""
        return self._sessions.get(session.group_id, session.member_id) is session

    def acquire(
        self, live: OpenSharePartition, request: ShareFetchCall, space: tuple[int, int]
    ) -> ShareFetched:
        """Lock records of one partition; ``space``: bytes and records left in the answer.

        Raises:
            MainstemError: they cannot be read.
        """
        live.check()
        writer, machine, (max_bytes, max_records) = live.writer, live.machine, space
        rules = self._configs.rules(request.group_id)
        committed_only = self._configs.committed_only(request.group_id)
        portion = AcquireLimit(
            records=max_records, batch_size=request.batch_size, strict=request.strict
        )
        machine.trim(writer.start_offset)
        for _ in range(_PASSED_OVER_MAX):
            offset = machine.next_offset(rules.locks_max)
            if offset is None:
                break
            part = writer.read(
                offset,
                max_bytes=min(max_bytes, READ_BYTES),
                committed_only=committed_only,
                min_one=max_bytes >= min(request.max_bytes, FETCH_RESPONSE_BYTES_MAX),
            )
            if part is None:
                break
            data = part.read()
            aborted = (
                writer.aborted_transactions(offset, part.until_offset) if committed_only else ()
            )
            batches = batches_to_share(data, aborted)
            now_ms = live.now_ms()
            acquired = machine.acquire(request.member_id, batches, portion, rules, now_ms)
            live.locked()
            if acquired:
                return ShareFetched(writer.id, cut_to(data, acquired), acquired)
        return ShareFetched(writer.id)

    def _check_right(
        self, request: ShareFetchCall | ShareAcknowledgeCall, stream: StreamId
    ) -> None:
        topic = self._streams.partition_by_id(stream.topic, stream.partition).topic
        if not request.may_read(topic):
            raise InvalidRequest(ErrorCode.NOT_AUTHORIZED, subject=topic)

    async def _acknowledge(
        self, request: ShareFetchCall | ShareAcknowledgeCall, every: Acknowledgements
    ) -> Refusals:
        async def one(stream: StreamId) -> MainstemError | None:
            try:
                self._check_right(request, stream)
                live = self._partitions.found(request.group_id, stream)
                await live.acknowledge(request.member_id, every[stream])
                self._drop_unread(live)
            except MainstemError as error:
                return error
            return None

        streams = [stream for stream, ranges in every.items() if ranges]
        refusals = await asyncio.gather(*map(one, streams))
        return dict(zip(streams, refusals, strict=True))

    def _close(self, session: ShareSession) -> None:
        self._sessions.close(session.group_id, session.member_id)
        # It may still hold records of partitions that left the session before.
        for live in self._partitions.of_group(session.group_id):
            live.release(session.member_id)
            self._drop_unread(live)

    def _drop_unread(self, live: OpenSharePartition) -> None:
        """Drop a partition without readers; members may still acknowledge their records."""
        shared = (live.group_id, live.writer.id)
        if not self._sessions.is_read(shared) and not live.machine.acquired:
            self._partitions.drop(shared)


class _Fetch:
    """One fetch: available records first, then those that arrive while it waits."""

    def __init__(
        self, service: ShareService, request: ShareFetchCall, session: ShareSession
    ) -> None:
        self._service = service
        self._request = request
        self._session = session
        self._wakeup = asyncio.Event()
        self._watched: list[OpenSharePartition] = []
        self._is_hindered = False

    def wake(self) -> None:
        """Wake up: records may be available."""
        self._wakeup.set()

    async def run(self) -> dict[StreamId, ShareFetched]:
        """What was locked, and what was refused."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + min(self._request.max_wait_ms, FETCH_WAIT_MS_MAX) / 1000
        self._service.fetches.add(self)
        try:
            while not self._service.is_stopping:
                self._wakeup.clear()
                found = await self._collect()
                left_s = until_s - loop.time()
                if found or left_s <= 0:
                    return found
                await _wait(self._wakeup, min(left_s, _PAUSE_S) if self._is_hindered else left_s)
            return {}
        finally:
            self._service.fetches.discard(self)
            self._unwatch()

    async def _collect(self) -> dict[StreamId, ShareFetched]:
        request, service = self._request, self._service
        streams = list(self._session.streams)
        opened = [(stream, await service.opened(request, stream)) for stream in streams]
        if not service.has(self._session):
            return {}  # its connection ended meanwhile: records locked now would not be released
        self._watch([live for _, live in opened if isinstance(live, OpenSharePartition)])
        space_bytes = min(request.max_bytes, FETCH_RESPONSE_BYTES_MAX)
        space_records = request.max_records
        found: dict[StreamId, ShareFetched] = {}
        self._is_hindered = False
        for stream, live in opened:
            if isinstance(live, MainstemError):
                self._refuse(found, stream, live)
                continue
            if space_bytes <= 0 or space_records <= 0:
                break
            try:
                fetched = service.acquire(live, request, (space_bytes, space_records))
            except MainstemError as error:
                self._refuse(found, stream, error)
                continue
            if fetched.acquired:
                found[stream] = fetched
                space_bytes -= len(fetched.records)
                space_records -= sum(one.until - one.start for one in fetched.acquired)
        self._session.serve_last(found)
        return found

    def _refuse(
        self, found: dict[StreamId, ShareFetched], stream: StreamId, error: MainstemError
    ) -> None:
        if error.code is ErrorCode.UNKNOWN_GROUP:
            raise error  # the same for all partitions
        if error.code in _REPORTED:
            found[stream] = ShareFetched(stream, error=error)
            return
        _log.info("%s returns no records to share groups now: %s", stream, error)
        self._is_hindered = True

    def _watch(self, every: Sequence[OpenSharePartition]) -> None:
        self._unwatch()
        for live in every:
            live.add_waiter(self.wake)
            live.writer.add_waiter(self.wake)
        self._watched = list(every)

    def _unwatch(self) -> None:
        for live in self._watched:
            live.remove_waiter(self.wake)
            live.writer.remove_waiter(self.wake)
        self._watched = []


async def _wait(wakeup: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(wakeup.wait(), seconds)
    except TimeoutError:
        return


def _check_names(group_id: str, member_id: str) -> None:
    if not 0 < len(group_id) <= GROUP_NAME_LENGTH_MAX:
        raise InvalidRequest(ErrorCode.INVALID_GROUP, "the group id is empty or too long")
    if not 0 < len(member_id) <= GROUP_NAME_LENGTH_MAX:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, "the member id is empty or too long", subject=group_id
        )
