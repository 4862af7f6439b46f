"""Produce: appends batches to their streams unchanged, one read burst at a time.

    take ─ take ─ take ──▶ finish: one write per stream, then all responses in one send

For a request with a known shape (``produce_shape``) neither the request is decoded nor the response
encoded; only the bytes of the shape are compared.
"""

from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Any

from mainstem.broker.api.broker import Broker, PartitionWriter, Settled, check_fresh
from mainstem.model.errors import (
    Corrupt,
    ErrorCode,
    InvalidRecords,
    InvalidRequest,
    MainstemError,
    Unavailable,
)
from mainstem.model.ids import Offset, TopicId
from mainstem.model.records.batch import HEADER_BYTES, read_header
from mainstem.protocols.kafka.call import Peer
from mainstem.protocols.kafka.errors import kafka_code, kafka_message
from mainstem.protocols.kafka.handlers.coordination.transaction_errors import produce_refusal
from mainstem.protocols.kafka.handlers.records.produce_shape import (
    API_KEY,
    OFFSET_MARK,
    ProduceShape,
    ProduceShapes,
    is_transactional,
    prefix_until,
    records_at,
)
from mainstem.protocols.kafka.response_queue import Replies
from mainstem.protocols.session import Chunk, Sender
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.telemetry.metrics import Metrics
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

TOPIC_IDS_SINCE = 13
IMPLICIT_ADD_SINCE = 12  # from here on partitions are added to a transaction by writing (KIP-890)
Partition = tuple[str, int]
Known = tuple[int, ProduceShape, Offset]  # correlation id, shape, base offset of a staged request


_version_and_correlation = Struct(">hi").unpack_from


class MultiPartitionProduce:
    """A request without a shape: several partitions, or a refused one."""

    __slots__ = ("acks", "correlation", "parts", "response", "version", "waiting")

    def __init__(self, correlation: int, version: int, acks: int) -> None:
        self.correlation = correlation
        self.version = version
        self.acks = acks
        self.response = ProduceResponse(responses=[])
        self.parts: list[tuple[PartitionProduceResponse, PartitionWriter, Offset]] = []
        self.waiting = 0

    def encoded(self) -> Sequence[Chunk]:
        """The encoded response."""
        return codec.encode_response_frame(API_KEY, self.version, self.correlation, self.response)


class ProducePath:
    """The produce requests of one connection."""

    __slots__ = (
        "_burst",
        "_metrics",
        "_peer",
        "_replies",
        "_sender",
        "_shapes",
        "_streams",
        "_throttle_ms",
        "_transactions",
    )

    def __init__(
        self, broker: Broker, replies: Replies, sender: Sender, metrics: Metrics, peer: Peer
    ) -> None:
        self._peer = peer
        self._streams = broker.streams
        self._transactions = broker.transactions
        self._replies = replies
        self._sender = sender
        self._shapes = ProduceShapes()
        self._burst: list[Known | MultiPartitionProduce] = []
        self._metrics = metrics
        self._throttle_ms = 0

    @property
    def has_staged(self) -> bool:
        """Whether ``finish`` has something to do."""
        return bool(self._burst)

    def take(
        self, buf: Any, view: memoryview, start: int, until: int
    ) -> Coroutine[Any, Any, None] | None:
        """Stage one request frame (without its length); ``finish`` answers it.

        A request that starts a transaction on a partition must ask the coordinator first: that
        work is returned, to be awaited before other requests of the connection are served.
        """
        version, correlation = _version_and_correlation(buf, start + 2)
        shape = self._shapes.last
        if shape is not None and version == shape.version:
            at = start + 8 + len(shape.prefix)
            if view[start + 8 : at] != shape.prefix:
                # It may be another partition of the same topic.
                shape = self._shapes.find(view[start + 8 : at], version)
            if shape is not None:
                records = records_at(buf, at, until, flexible=shape.flexible)
                rights = self._peer.rights
                if records is not None and shape.fits_still(buf, records, rights):
                    try:
                        base = shape.writer.stage(view, records[0], records[1])
                    except MainstemError:
                        # Refused below, with the full error.
                        self._shapes.forget(shape)
                    else:
                        self._burst.append((correlation, shape, base))
                        return None
        return self._take_any(view, start, until)

    def finish(self, throttle_ms: int = 0) -> None:
        """Write the staged requests of the burst and answer them, in order.

        ``throttle_ms`` is the throttle time in the responses.
        """
        burst, self._burst = self._burst, []
        self._throttle_ms = throttle_ms
        self._streams.flush()
        ready: list[Chunk] = []
        parked: list[Known] = []  # requests of one stream, committed by one sync
        for entry in burst:
            if isinstance(entry, MultiPartitionProduce):
                self._park(parked, ready)
                parked = []
                self._settle_wide(entry, ready)
                continue
            correlation, shape, base = entry
            writer = shape.writer
            failure = writer.failure(base)
            # On a lone replica acks=1 waits for the commit too: what is acknowledged can be read.
            waits = (
                failure is None and base >= writer.committed and (shape.acks != 1 or writer.is_lone)
            )
            if parked and not (waits and parked[0][1].writer is writer):
                self._park(parked, ready)
                parked = []
            if waits:
                parked.append(entry)
            elif failure is not None:
                self._settle_wide(_refusal(correlation, shape, failure), ready)
            else:
                ready.append(shape.filled(correlation, base, throttle_ms))
        self._park(parked, ready)
        if ready:
            self._replies.answer(ready)

    # Requests of any shape

    def _take_any(
        self, view: memoryview, start: int, until: int
    ) -> Coroutine[Any, Any, None] | None:
        request, wide = _decoded(view, start, until)
        if self._may_be_transactional(request) and self._begins_transaction(request, wide):
            return self._take_verified(bytearray(view[start:until]))
        self._stage_all(request, wide, {})
        if request.acks != 0:
            self._learn(view, start, until, wide, request)
        return None

    async def _take_verified(self, frame: bytearray) -> None:
        """Stage a request once the coordinator has added its partitions to the transaction.

        The frame is a copy: the connection's buffer is reused while the coordinator responds.
        """
        request, wide = _decoded(memoryview(frame), 0, len(frame))
        assert request.transactional_id is not None
        asked = self._new_partitions(request, wide)
        outcomes: dict[Partition, ErrorCode | None] = {}
        producers = {identity for _, identity in asked}
        try:
            for producer_id, epoch in producers:
                names = [part for part, identity in asked if identity == (producer_id, epoch)]
                answers = await self._transactions.add_partitions(
                    request.transactional_id,
                    producer_id,
                    epoch,
                    names,
                    verify_only=wide.version < IMPLICIT_ADD_SINCE,
                )
                outcomes.update(zip(names, answers, strict=True))
        except MainstemError as error:
            outcomes.update({part: error.code for part, _ in asked})
        refusals = {part: produce_refusal(code, wide.version) for part, code in outcomes.items()}
        self._stage_all(request, wide, refusals)

    def _may_be_transactional(self, request: ProduceRequest) -> bool:
        name = request.transactional_id
        return name is not None and self._peer.rights.may(
            Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name
        )

    def _begins_transaction(self, request: ProduceRequest, wide: MultiPartitionProduce) -> bool:
        return bool(self._new_partitions(request, wide))

    def _new_partitions(
        self, request: ProduceRequest, wide: MultiPartitionProduce
    ) -> list[tuple[Partition, tuple[int, int]]]:
        """Partitions that are not in the transaction yet, with producer id and epoch."""
        found = []
        for topic in request.topic_data:
            for part in topic.partition_data:
                try:
                    writer = self._writer(wide.version, topic.topic_id, topic.name, part.index)
                except MainstemError:
                    continue  # refused when it is staged
                may = self._peer.rights.may(Operation.WRITE, ResourceType.TOPIC, writer.topic)
                if not may or writer.is_internal:
                    continue
                if part.records is None or len(part.records) < HEADER_BYTES:
                    continue
                header = read_header(part.records)
                identity = (header.producer_id, header.producer_epoch)
                if header.is_transactional and not writer.has_transaction(*identity):
                    found.append(((writer.topic, part.index), identity))
        return found

    def _stage_all(
        self,
        request: ProduceRequest,
        wide: MultiPartitionProduce,
        outcomes: Mapping[Partition, ErrorCode | None],
    ) -> None:
        for topic in request.topic_data:
            answer = TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=[]
            )
            wide.response.responses.append(answer)
            for part in topic.partition_data:
                reply = PartitionProduceResponse(index=part.index, base_offset=-1)
                answer.partition_responses.append(reply)
                try:
                    writer = self._permitted(wide.version, topic, part.index)
                    verified = (writer.topic, part.index) in outcomes
                    refusal = outcomes.get((writer.topic, part.index))
                    if refusal is not None:
                        raise InvalidRequest(refusal, subject=f"{writer.topic}-{part.index}")
                    base = self._stage(request, writer, part.records, verified=verified)
                except MainstemError as error:
                    self._metrics.batches_refused += 1
                    _refuse(reply, error)
                else:
                    wide.parts.append((reply, writer, base))
        self._burst.append(wide)

    def _writer(self, version: int, topic_id: bytes, name: str, partition: int) -> PartitionWriter:
        if version >= TOPIC_IDS_SINCE:
            return self._streams.partition_by_id(TopicId(topic_id), partition)
        return self._streams.partition(name, partition)

    def _permitted(self, version: int, topic: TopicProduceData, partition: int) -> PartitionWriter:
        """The stream, if the client may write to it; a refusal does not reveal if it exists."""
        need = self._peer.rights.need
        if version < TOPIC_IDS_SINCE:
            need(Operation.WRITE, ResourceType.TOPIC, topic.name)
        writer = self._writer(version, topic.topic_id, topic.name, partition)
        if version >= TOPIC_IDS_SINCE:
            need(Operation.WRITE, ResourceType.TOPIC, writer.topic)
        if writer.is_internal:
            raise InvalidRequest(
                ErrorCode.INVALID_TOPIC_NAME,
                "the topic is internal; only nodes write it",
                subject=writer.topic,
            )
        return writer

    def _check_transaction(self, request: ProduceRequest, records: memoryview) -> None:
        """Refuse a transactional batch without a transactional id that the client may use."""
        name = request.transactional_id
        if name is not None:
            self._peer.rights.need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        elif is_transactional(records, 0, len(records)):
            raise InvalidRequest(
                ErrorCode.TRANSACTIONAL_ID_NOT_AUTHORIZED,
                "a transactional batch in a request without a transactional id",
            )

    def _stage(
        self,
        request: ProduceRequest,
        writer: PartitionWriter,
        records: memoryview | None,
        *,
        verified: bool,
    ) -> Offset:
        if request.acks not in (-1, 0, 1):
            raise InvalidRequest(
                ErrorCode.INVALID_ACKS, f"acks={request.acks}", remedy="use -1, 0 or 1"
            )
        if request.acks != -1:
            check_fresh(writer)
        elif writer.short_of_replicas:
            raise Unavailable(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                "min.insync.replicas is larger than the number of replicas",
                subject=f"{writer.topic}-{writer.id.partition}",
            )
        if records is None:
            raise Corrupt("no records for the partition")
        self._check_transaction(request, records)
        return writer.stage(records, 0, len(records), verified=verified)

    def _learn(
        self,
        view: memoryview,
        start: int,
        until: int,
        wide: MultiPartitionProduce,
        request: ProduceRequest,
    ) -> None:
        """Remember the shape of a request with one accepted partition."""
        self._shapes.last = None
        if len(wide.parts) != 1 or len(wide.response.responses) != 1:
            return
        reply, writer, _ = wide.parts[0]
        if len(wide.response.responses[0].partition_responses) != 1 or writer.append_time_ms != -1:
            return
        records: memoryview = request.topic_data[0].partition_data[0].records
        prefix = prefix_until(view, start, until, records, wide.version)
        if prefix is None:
            return
        shape = ProduceShape(writer, wide.version, wide.acks, prefix)
        shape.rights = self._peer.rights
        shape.rules = shape.rights.version
        shape.transactional = request.transactional_id is not None
        reply.base_offset = OFFSET_MARK
        reply.log_start_offset = shape.start
        shape.learn_answer(b"".join(wide.encoded()))  # type: ignore[arg-type]
        reply.base_offset = -1
        self._shapes.learn(shape)

    # Responses

    def _park(self, parked: list[Known], ready: list[Chunk]) -> None:
        """Answer consecutive requests of one stream when the last one is committed."""
        if not parked:
            return
        self._send_first(ready)
        replies = self._replies
        reply = replies.reserve()
        throttle_ms = self._throttle_ms

        def settled(error: MainstemError | None) -> None:
            if error is None:
                replies.settle(
                    reply,
                    [shape.filled(number, base, throttle_ms) for number, shape, base in parked],
                )
                return
            refusals = [_refusal(number, shape, error) for number, shape, _ in parked]
            replies.settle(reply, [chunk for each in refusals for chunk in each.encoded()])

        # A repeated batch has an older offset: the largest one is the last to be committed.
        last = max(base for _, _, base in parked)
        _when_written(parked[0][1].writer, last, settled)

    def _settle_wide(self, wide: MultiPartitionProduce, ready: list[Chunk]) -> None:
        wide.response.throttle_time_ms = self._throttle_ms
        for part, writer, base in wide.parts:
            failure = writer.failure(base)
            if failure is not None:
                _refuse(part, failure)
                continue
            part.base_offset = base
            part.log_append_time_ms = writer.append_time_ms
            part.log_start_offset = writer.start_offset
        if wide.acks == 0:
            if any(p.error_code for t in wide.response.responses for p in t.partition_responses):
                # There is no response; a closed connection makes the client refresh its metadata.
                self._sender.close()
            return
        self._await_parts(wide, ready)
        if not wide.waiting:
            ready.extend(wide.encoded())

    def _await_parts(self, wide: MultiPartitionProduce, ready: list[Chunk]) -> None:
        """Defer the response until every partition that it waits for is committed."""
        open_parts = [
            (part, writer, base)
            for part, writer, base in wide.parts
            if part.error_code == 0
            and base >= writer.committed
            and (wide.acks == -1 or writer.is_lone)
        ]
        if not open_parts:
            return
        self._send_first(ready)
        replies = self._replies
        reply = replies.reserve()
        wide.waiting = len(open_parts)

        def settle_one(part: PartitionProduceResponse, error: MainstemError | None) -> None:
            if error is not None:
                _refuse(part, error)
            wide.waiting -= 1
            if not wide.waiting:
                replies.settle(reply, wide.encoded())

        for part, writer, base in open_parts:
            _when_written(writer, base, partial(settle_one, part))
        if not wide.waiting:
            wide.waiting = -1  # answered through its reserved reply

    def _send_first(self, ready: list[Chunk]) -> None:
        if ready:
            self._replies.answer(tuple(ready))
            ready.clear()


def _decoded(
    view: memoryview, start: int, until: int
) -> tuple[ProduceRequest, MultiPartitionProduce]:
    _, version, correlation, _, body = codec.decode_request_header(view, start, until)
    request: ProduceRequest = codec.decode_request(API_KEY, version, view, body, until)
    return request, MultiPartitionProduce(correlation, version, request.acks)


def _when_written(writer: PartitionWriter, base: Offset, settled: Settled) -> None:
    try:
        if writer.when_written(base, settled):
            settled(None)
    except MainstemError as error:
        settled(error)


def _refuse(part: PartitionProduceResponse, error: MainstemError) -> None:
    part.error_code = kafka_code(error)
    part.error_message = kafka_message(error)
    part.base_offset = -1
    part.log_append_time_ms = part.log_start_offset = -1
    if isinstance(error, InvalidRecords):
        part.record_errors = [BatchIndexAndErrorMessage(*record) for record in error.records]


def _refusal(correlation: int, shape: ProduceShape, error: MainstemError) -> MultiPartitionProduce:
    """The response to a request of a known shape whose append failed."""
    wide = MultiPartitionProduce(correlation, shape.version, shape.acks)
    body = 9 if shape.flexible else 8
    wide.response = codec.decode_response(
        API_KEY, shape.version, shape.answer, body, len(shape.answer)
    )
    _refuse(wide.response.responses[0].partition_responses[0], error)
    return wide
