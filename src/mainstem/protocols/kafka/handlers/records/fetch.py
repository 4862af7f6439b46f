"""Fetch: answered at once, or parked until enough data is available.

A request that finds less than ``min_bytes`` waits on its streams and is woken when one of them
advances, without polling. Records are not decoded: the response has slices of the log files.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from mainstem.broker.api.broker import PartitionReader, Slice, Streams, check_fresh
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest, MainstemError
from mainstem.model.ids import NO_NODE, TopicId
from mainstem.model.limits import (
    FETCH_RESPONSE_BYTES_MAX,
    FETCH_WAIT_MS_MAX,
    PARKED_FETCHES_MAX,
)
from mainstem.protocols.kafka.call import Call
from mainstem.protocols.kafka.errors import kafka_code
from mainstem.protocols.kafka.fetch_sessions import FetchedPartition, FetchSession, FetchSessions
from mainstem.protocols.session import Chunk
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.security.quotas import FETCH_BYTES
from mainstem.telemetry.metrics import Metrics
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

API_KEY = 1
READ_COMMITTED = 1
# From this version on consumers can read from replicas, and send their rack (KIP-392).
REPLICAS_VERSION = 11
# A retriable error that consumers of a replica handle as well.
_OFFSET_NOT_AVAILABLE = 78

Found = tuple[FetchedPartition, Slice | None, MainstemError | None]


class Fetch:
    """One fetch request, from its receipt to its response."""

    __slots__ = (
        "_answer",
        "_correlation",
        "_incremental",
        "_metrics",
        "_peer",
        "_readers",
        "_request",
        "_session",
        "_streams",
        "_timer",
        "_version",
    )

    def __init__(
        self,
        streams: Streams,
        call: Call,
        correlation: int,
        request: FetchRequest,
        answer: Callable[["Fetch", Sequence[Chunk]], None],
        metrics: Metrics,
    ) -> None:
        self._streams = streams
        self._version = call.version
        self._peer = call.peer
        self._correlation = correlation
        self._request = request
        self._answer = answer
        self._readers: list[PartitionReader] = []
        self._timer: asyncio.TimerHandle | None = None
        self._incremental = False
        self._session: FetchSession
        self._metrics = metrics

    def start(self, sessions: FetchSessions, loop: asyncio.AbstractEventLoop) -> None:
        """Respond now, or park until enough data is available or the wait time has passed."""
        request = self._request
        try:
            if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
                raise InvalidRequest(
                    ErrorCode.INVALID_REQUEST, "replicas of this cluster do not use Fetch"
                )
            self._session, self._incremental = sessions.resolve(request)
        except MainstemError as error:
            self._send(FetchResponse(error_code=kafka_code(error), session_id=0, responses=[]))
            return
        found, enough = self._collect()
        parked = self._metrics.fetches_parked
        if enough or request.max_wait_ms <= 0 or parked >= PARKED_FETCHES_MAX:
            self._respond(found)
            return
        self._readers = [w.reader for w in self._session.wanted.values() if w.reader is not None]
        self._metrics.fetches_parked += 1
        for reader in self._readers:
            reader.add_waiter(self._woken)
        wait_s = min(request.max_wait_ms, FETCH_WAIT_MS_MAX) / 1000
        self._timer = loop.call_later(wait_s, self._waited)

    def cancel(self) -> None:
        """Drop the request: its connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._metrics.fetches_parked -= 1
        for reader in self._readers:
            reader.remove_waiter(self._woken)
        self._readers = []

    def _woken(self) -> None:
        if not self._readers:
            return  # answered or cancelled while others were being woken
        found, enough = self._collect()
        if enough:
            self.cancel()
            self._respond(found)

    def _waited(self) -> None:
        self.cancel()
        self._respond(self._collect()[0])

    def _collect(self) -> tuple[list[Found], bool]:
        """The available data of every partition, and whether it is enough to respond."""
        request = self._request
        budget = min(request.max_bytes, FETCH_RESPONSE_BYTES_MAX)
        committed_only = request.isolation_level == READ_COMMITTED
        rack = request.rack_id
        total = 0
        failed = False
        found: list[Found] = []
        for wanted in self._session.wanted.values():
            try:
                reader = self._reader(wanted)
                if rack and self._is_sent_on(wanted, reader, rack):
                    failed = True
                    found.append((wanted, None, None))
                    continue
                part = reader.read(
                    wanted.offset,
                    max_bytes=min(wanted.max_bytes, max(budget - total, 0)),
                    committed_only=committed_only,
                    min_one=total == 0,
                )
            except MainstemError as error:
                failed = True
                found.append((wanted, None, error))
                continue
            if part is not None:
                total += len(part)
            found.append((wanted, part, None))
        wanted_bytes = max(min(request.min_bytes, budget), 0)
        enough = failed or not found or total >= wanted_bytes
        # If nothing was read, there may be no records although offsets continue (compaction).
        return found, enough or (total > 0 and self._has_available(found, wanted_bytes))

    def _has_available(self, found: list[Found], wanted_bytes: int) -> bool:
        """Whether so many bytes are available, including batches that do not fit the response."""
        committed_only = self._request.isolation_level == READ_COMMITTED
        total = 0
        for wanted, part, _ in found:
            reader = wanted.reader
            assert reader is not None, "a partition that failed is answered at once"
            size, offset = (0, wanted.offset) if part is None else (len(part), part.until_offset)
            left = wanted.max_bytes - size
            total += size
            if left > 0:
                try:
                    total += reader.available(offset, max_bytes=left, committed_only=committed_only)
                except MainstemError:
                    return True  # the next fetch reports the error
            if total >= wanted_bytes:
                return True
        return False

    def _permit(self, wanted: FetchedPartition, name: str) -> None:
        """Refuse unless the client may read; cached for these rights and their version."""
        rights = self._peer.rights
        if wanted.granted != (rights, rights.version):
            rights.need(Operation.READ, ResourceType.TOPIC, name)
            wanted.granted = (rights, rights.version)

    def _is_sent_on(self, wanted: FetchedPartition, reader: PartitionReader, rack: str) -> bool:
        """Whether the consumer is redirected to a replica in its rack."""
        wanted.nearer = self._streams.nearest(reader.id, rack, wanted.offset)
        return wanted.nearer != NO_NODE

    def _reader(self, wanted: FetchedPartition) -> PartitionReader:
        reader = wanted.reader
        if reader is None or reader.closed is not None:
            topic_id, name, partition = wanted.key
            if name:
                self._permit(wanted, name)
            reader = wanted.reader = self._find(TopicId(topic_id), name, partition)
        self._permit(wanted, reader.topic)
        check_fresh(reader)
        if wanted.epoch not in (-1, reader.epoch):
            older = wanted.epoch < reader.epoch
            raise Fenced(
                ErrorCode.FENCED_EPOCH if older else ErrorCode.UNKNOWN_EPOCH,
                f"epoch {wanted.epoch} is not the writer's epoch {reader.epoch}",
            )
        return reader

    def _find(self, topic_id: TopicId, name: str, partition: int) -> PartitionReader:
        streams = self._streams
        if self._version < REPLICAS_VERSION:
            return streams.partition(name, partition)
        if name:
            return streams.reader(name, partition)
        return streams.reader_by_id(topic_id, partition)

    def _respond(self, found: list[Found]) -> None:
        topics: dict[tuple[bytes, str], FetchableTopicResponse] = {}
        served = []
        taken = 0
        committed_only = self._request.isolation_level == READ_COMMITTED
        for wanted, part, error in found:
            data = _partition_data(wanted, part, error)
            if committed_only and part is not None and wanted.reader is not None:
                data.aborted_transactions = [
                    AbortedTransaction(producer_id, first_offset)
                    for producer_id, first_offset in wanted.reader.aborted_transactions(
                        wanted.offset, part.until_offset
                    )
                ]
            offsets = (data.high_watermark, data.last_stable_offset, data.log_start_offset)
            has_changes = part is not None or error is not None or wanted.nearer != NO_NODE
            if self._incremental and not has_changes and offsets == wanted.sent_offsets:
                continue
            wanted.sent_offsets = offsets if error is None else None
            topic_id, name, _ = wanted.key
            topic = topics.get((topic_id, name))
            if topic is None:
                topic = topics[topic_id, name] = FetchableTopicResponse(
                    topic=name, topic_id=topic_id, partitions=[]
                )
            topic.partitions.append(data)
            if part is not None:
                served.append(wanted.key)
                taken += len(part)
                self._metrics.messages_out += part.until_offset - part.start_offset
        self._session.serve_last(served)
        self._metrics.bytes_out += taken
        self._peer.charge(FETCH_BYTES, taken)
        response = FetchResponse(session_id=self._session.id, responses=list(topics.values()))
        response.throttle_time_ms = self._peer.owed_ms
        self._send(response)

    def _send(self, response: FetchResponse) -> None:
        self._answer(
            self,
            codec.encode_response_frame(API_KEY, self._version, self._correlation, response),
        )


def _partition_data(
    wanted: FetchedPartition, part: Slice | None, error: MainstemError | None
) -> PartitionData:
    records: Any = part if part is not None else b""
    if error is not None or wanted.reader is None:
        return PartitionData(
            partition_index=wanted.key[2],
            error_code=_fetch_code(error),
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            aborted_transactions=None,
            records=b"",
        )
    reader = wanted.reader
    return PartitionData(
        partition_index=wanted.key[2],
        high_watermark=reader.committed,
        last_stable_offset=reader.last_stable,
        log_start_offset=reader.start_offset,
        aborted_transactions=None,
        preferred_read_replica=wanted.nearer,
        records=records,
    )


def _fetch_code(error: MainstemError | None) -> int:
    """Like ``kafka_code``, except for an error that consumers do not expect from Fetch."""
    if error is not None and error.code is ErrorCode.WRITER_UNAVAILABLE:
        return _OFFSET_NOT_AVAILABLE
    return kafka_code(error)
