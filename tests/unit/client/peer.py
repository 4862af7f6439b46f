"""Small peers for client tests: one that follows a script, one that keeps a log as a broker does.

They speak through our own codec and stand for what is hard to make a real node do on demand:
strange versions, late, malformed and missing answers, lost connections, lost acknowledgements.
"""

import asyncio
import contextlib
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from mainstem.model.records.batch import read_header
from mainstem.model.records.record import records_of
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from mainstem.wire.kafka.messages.init_producer_id import InitProducerIdResponse
from mainstem.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from mainstem.wire.kafka.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)


class HangUp(Exception):
    """The peer ends the connection instead of answering."""


Handler = Callable[[Any, int], Any]
SILENCE = object()  # the peer does not answer


class ScriptedPeer:
    """Answers each API with what its handler returns: a response, raw bytes, or ``SILENCE``."""

    def __init__(self, handlers: dict[str, Handler] | None = None) -> None:
        self.handlers: dict[str, Handler] = {"ApiVersions": self.versions, **(handlers or {})}
        self.offered = dict(codec.VERSIONS)
        self.requests: list[tuple[str, int, Any]] = []
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()
        await asyncio.sleep(0.01)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def versions(self, request: Any, version: int) -> Any:
        return ApiVersionsResponse(
            api_keys=[ApiVersion(key, low, high) for key, (low, high) in self.offered.items()]
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, HangUp):
            while True:
                [size] = struct.unpack(">i", await reader.readexactly(4))
                self._answer(await reader.readexactly(size), writer)
                await writer.drain()
        self._writers.discard(writer)
        writer.transport.abort()

    def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        key, version, correlation_id, _, body = codec.decode_request_header(frame, 0, len(frame))
        request = codec.decode_request(key, version, frame, body, len(frame))
        name = codec.NAMES[key]
        self.requests.append((name, version, request))
        answer = self.handlers[name](request, version)
        if answer is SILENCE:
            return
        if isinstance(answer, bytes):
            writer.write(answer)
        else:
            frame_out: list[Any] = codec.encode_response_frame(key, version, correlation_id, answer)
            writer.writelines(frame_out)


class LogPeer(ScriptedPeer):
    """One broker with one topic that checks sequence numbers as Kafka does.

    ``mishap(stored)`` is asked before and after a batch is stored and may return an error number or
    raise ``HangUp``.
    """

    def __init__(self, partitions: int = 1, mishap: Callable[[bool], int] | None = None) -> None:
        super().__init__(
            {
                "Metadata": self.metadata,
                "InitProducerId": self.init_producer_id,
                "Produce": self.produce,
            }
        )
        self.partitions = partitions
        self.mishap = mishap or (lambda stored: 0)
        self.logs: dict[int, list[bytes | None]] = {index: [] for index in range(partitions)}
        self.batches = 0
        self.knows_where_duplicates_are = True
        self._next_producer_id = 1000
        self._remembered: dict[tuple[int, int], list[tuple[int, int, int]]] = {}

    def metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(
                partition_index=index, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
            )
            for index in range(self.partitions)
        ]
        topics = [
            MetadataResponseTopic(
                name=topic.name,
                topic_id=(topic.name or "").encode().ljust(16),
                partitions=partitions,
            )
            for topic in request.topics or []
        ]
        broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
        return MetadataResponse(brokers=[broker], controller_id=1, cluster_id="peer", topics=topics)

    def init_producer_id(self, request: Any, version: int) -> InitProducerIdResponse:
        self._next_producer_id += 1
        return InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=0)

    def forget_producers(self) -> None:
        """What a broker does that lost its producer state."""
        self._remembered.clear()

    def produce(self, request: ProduceRequest, version: int) -> Any:
        topics = []
        for topic in request.topic_data:
            answers = [self._append(part.index, part.records) for part in topic.partition_data]
            topics.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=answers
                )
            )
        return SILENCE if request.acks == 0 else ProduceResponse(responses=topics)

    def _append(self, partition: int, data: memoryview) -> PartitionProduceResponse:
        answer = PartitionProduceResponse(index=partition)
        answer.error_code = self.mishap(False)
        if answer.error_code:
            return answer
        header = read_header(data)
        log = self.logs[partition]
        answer.base_offset = len(log)
        if header.producer_id >= 0:
            known = self._remembered.setdefault((header.producer_id, partition), [])
            for first, last, offset in known:
                if (first, last) == (
                    header.base_sequence,
                    header.base_sequence + header.record_count - 1,
                ):
                    answer.base_offset = offset
                    answer.error_code = 0 if self.knows_where_duplicates_are else 46
                    return answer
            if header.base_sequence != (known[-1][1] + 1 if known else 0):
                answer.error_code = 45 if known or header.base_sequence else 0
                return answer
            known.append(
                (header.base_sequence, header.base_sequence + header.record_count - 1, len(log))
            )
            del known[:-5]
        log.extend(record.value for record in records_of(data))
        self.batches += 1
        answer.error_code = self.mishap(True)
        return answer
