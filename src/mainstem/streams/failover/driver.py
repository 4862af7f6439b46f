"""Fail-over to this node: carries out what ``FailOver`` decides, then seals.

    fence all replicas ──▶ end found ──▶ copies on enough disks ──▶ catalogue ──▶ state ──▶ opened

Guarantees: it continues until the stream is open here, a newer writer was elected, or the stream
was deleted; a node that does not answer is asked again; nothing is opened before the catalogue has
sealed the range that was left open.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final
from uuid import uuid4

from msgspec.structs import replace

from mainstem.cluster.peers.frames import PeerService
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import Epoch, NodeId, Offset
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.streams.context import StreamsContext, directory_of, policy_of
from mainstem.streams.failover.seal_driver import range_end, submit_until_decided
from mainstem.streams.failover.sealing import SealRequest
from mainstem.streams.failover.state_machine import (
    FailOver,
    FailOverEffects,
    FailOverSettings,
    ReplicaCopy,
    TakeoverRange,
)
from mainstem.streams.replica.messages import (
    Acknowledged,
    AppendBatches,
    AskBatches,
    AskFence,
    AskState,
    BatchesReply,
    Promised,
    ReplicaRefused,
    decode,
    encode,
    key_of,
)
from mainstem.streams.replica.service import COPY_BYTES_MAX, ReplicaService
from mainstem.streams.replica.state_machine import FenceAnswer
from mainstem.streams.writer.replication import OpenRange, SealPoint

SOURCE_LOST_S: Final = 0.02
ASK_TIMEOUT_S: Final = 2.0
COPY_TIMEOUT_S: Final = 10.0
TICK_S: Final = 0.05
STATE_PAUSE_S: Final = 0.2
# How long to wait for copies when too many replicas are known to be dead.
LONE_AMONG_DEAD_MS: Final = 200
# How long an unclean election waits for replicas that may still answer.
UNCLEAN_AFTER_MS: Final = 1_000

_log = logging.getLogger(__name__)


class FailOverDriver:
    """Takes one stream over under one epoch.

    Args:
        unclean: the operator accepts the loss of records, if that is the only way.
    """

    def __init__(
        self,
        context: StreamsContext,
        replicas: ReplicaService,
        topic: Topic,
        stream: Stream,
        *,
        unclean: bool,
    ) -> None:
        self._context = context
        self._replicas = replicas
        self._topic = topic
        self._stream = stream
        self._range_info = stream.last
        self._key = key_of(stream.id, stream.last.index)
        self._directories = {node: directory_of(stream.last, node) for node in stream.last.replicas}
        settings = FailOverSettings(unclean_after_ms=UNCLEAN_AFTER_MS if unclean else None)
        catalogue = context.placement.catalogue
        up = sum(catalogue.is_live(node) for node in self._range_info.replicas)
        if up < self._range_info.acks_needed:
            # The others are known to be dead: no copies can be made meanwhile.
            settings = replace(settings, lone_after_ms=LONE_AMONG_DEAD_MS)
        taken = TakeoverRange(
            OpenRange(
                stream.id,
                self._range_info.index,
                self._range_info.epoch,
                self._range_info.start,
                self._range_info.replicas,
            ),
            stream.epoch,
            context.node,
            self._directories,
        )
        self._machine = FailOver(taken, policy_of(self._range_info), settings, context.now_ms())
        # Results of requests to nodes; an error is one that is no node's refusal.
        self._happened: asyncio.Queue[FailOverEffects | BaseException] = asyncio.Queue()
        self._busy: dict[tuple[str, NodeId], asyncio.Task[None]] = {}

    @property
    def epoch(self) -> Epoch:
        """The epoch of this node's election."""
        return self._stream.epoch

    def missing(self) -> int:
        """How many replicas have to answer before the stream can continue."""
        return self._machine.missing()

    async def run(self) -> Stream | None:
        """The stream once this node may write it; None: another was elected.

        Raises:
            MainstemError: the stream was deleted.
            BaseException: this node's own files failed in a way that is not a refusal.
        """
        try:
            point = await self._find_end()
        finally:
            for task in self._busy.values():
                task.cancel()
            await asyncio.gather(*self._busy.values(), return_exceptions=True)
        return None if point is None else await self._seal(point)

    async def _find_end(self) -> SealPoint | None:
        effects = self._machine.begin()
        while True:
            for node in effects.fences:
                self._begin(("fence", node), self._fence(node))
            for copy in effects.copies:
                self._begin(("copy", copy.target), self._copy(copy))
            if effects.seal is not None:
                return effects.seal
            if effects.deposed_by is not None:
                return None
            try:
                async with asyncio.timeout(TICK_S):
                    happened = await self._happened.get()
            except TimeoutError:
                happened = self._machine.on_time(self._context.now_ms())
            if isinstance(happened, BaseException):
                raise happened
            effects = happened

    async def _seal(self, point: SealPoint) -> Stream | None:
        context = self._context
        log = self._replicas.registry.hold(self._topic, self._stream, self._range_info).log
        request = SealRequest(
            uuid4().hex,
            range_end(
                self._stream,
                self._range_info,
                log,
                point,
                (self._stream.epoch, context.clock.wall_ms()),
            ),
            point.done,
            unclean=point.unclean,
        )
        outcome = await submit_until_decided(context, request)
        _log.info(
            "%s-%d was taken over under epoch %d at %d%s",
            self._topic.name,
            self._stream.id.partition,
            self._stream.epoch,
            point.end,
            ", records may be missing" if point.suspect or point.unclean else "",
        )
        return outcome.opened

    # One request at a time to every node.

    def _begin(self, what: tuple[str, NodeId], work: Coroutine[Any, Any, None]) -> None:
        if what in self._busy:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._busy[what] = task

        def ended(task: asyncio.Task[None]) -> None:
            self._busy.pop(what, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._happened.put_nowait(error)

        task.add_done_callback(ended)

    async def _fence(self, node: NodeId) -> None:
        asked = AskFence(self._key, self._stream.epoch, self._directories[node])
        try:
            answer = await self._ask_fence(node, asked)
        except MainstemError as error:
            _log.info("node %d did not promise range %d: %s", node, asked.key.index, error)
            return
        if isinstance(answer, Promised):
            if not self._directories[node]:  # disks are not checked for this range
                self._directories[node] = answer.directory
            fence_answer = FenceAnswer(answer.epoch, answer.end, answer.limbo, answer.directory)
            now = self._context.now_ms()
            self._happened.put_nowait(self._machine.on_answer(node, fence_answer, now))
        elif answer.fenced_by is not None:
            self._happened.put_nowait(self._machine.on_fenced(answer.fenced_by))

    async def _ask_fence(self, node: NodeId, asked: AskFence) -> Promised | ReplicaRefused:
        if node == self._context.node:
            return await self._replicas.fence(asked)
        body = await self._context.peers.ask(
            node, PeerService.RANGES, [encode(asked)], timeout_s=ASK_TIMEOUT_S
        )
        answer, _ = decode(body)
        assert isinstance(answer, Promised | ReplicaRefused), "a fence is answered"
        return answer

    async def _copy(self, copy: ReplicaCopy) -> None:
        at = copy.start
        while at < copy.until:
            try:
                found, batches = await self._read(copy.source, at, copy.until)
            except MainstemError as error:
                _log.info("node %d cannot be copied from: %s", copy.source, error)
                await self._lose_source(copy.source)
                return
            if found.until <= at:
                await self._lose_source(copy.source)
                return
            try:
                answer = await self._store(copy.target, found, batches)
            except MainstemError as error:
                _log.info("node %d cannot be copied to: %s", copy.target, error)
                return
            if isinstance(answer, ReplicaRefused):
                if answer.fenced_by is not None:
                    self._happened.put_nowait(self._machine.on_fenced(answer.fenced_by))
                return
            at = found.until
            self._happened.put_nowait(self._machine.on_copied(copy.target, answer.synced))

    async def _lose_source(self, source: NodeId) -> None:
        # If it is the only one it is tried again, but not in a loop without a pause.
        await asyncio.sleep(SOURCE_LOST_S)
        self._happened.put_nowait(self._machine.on_source_lost(source))

    async def _read(
        self, source: NodeId, start: Offset, until: Offset
    ) -> tuple[BatchesReply, bytes | memoryview]:
        asked = AskBatches(self._key, self._range_info.generation, start, until, COPY_BYTES_MAX)
        return await read_from(self._context, self._replicas, source, asked)

    async def _store(
        self, target: NodeId, found: BatchesReply, batches: bytes | memoryview
    ) -> Acknowledged | ReplicaRefused:
        message = AppendBatches(
            self._key,
            self._stream.epoch,
            found.start,
            found.until,
            self._range_info.start,
            directory=self._directories[target],
            opening=found.opening,
            to_disk=True,
        )
        if target == self._context.node:
            return await self._replicas.store(message, memoryview(batches))
        body = await self._context.peers.ask(
            target, PeerService.RANGES, [encode(message), batches], timeout_s=COPY_TIMEOUT_S
        )
        answer, _ = decode(body)
        assert isinstance(answer, Acknowledged | ReplicaRefused), "what is sent is acknowledged"
        return answer


async def read_from(
    context: StreamsContext, replicas: ReplicaService, source: NodeId, asked: AskBatches
) -> tuple[BatchesReply, bytes | memoryview]:
    """Batches of a range from the files of a node, this one or another.

    Raises:
        MainstemError: it cannot be reached, or does not have them.
    """
    if source == context.node:
        return replicas.read(asked)
    body = await context.peers.ask(
        source, PeerService.RANGES, [encode(asked)], timeout_s=COPY_TIMEOUT_S
    )
    found, batches = decode(body)
    assert isinstance(found, BatchesReply), "a request for batches is answered with batches"
    return found, batches


async def opening_of(
    context: StreamsContext, replicas: ReplicaService, topic: Topic, stream: Stream
) -> bytes:
    """The state of a stream where its last range starts: from own files, or from another node.

    Raises:
        Unavailable: no reachable node has it.
    """
    last = stream.last
    try:
        return replicas.registry.state_before(topic, stream, last)
    except (Unavailable, Corrupt):
        _log.info("the state of %s-%d is requested", topic.name, stream.id.partition)
    for node in _who_may_know(stream):
        if node == context.node:
            continue
        asked = encode(AskState(key_of(stream.id, last.index)))
        try:
            body = await context.peers.ask(
                node, PeerService.RANGES, [asked], timeout_s=COPY_TIMEOUT_S
            )
        except MainstemError:
            continue
        return bytes(decode(body)[1])
    raise Unavailable(
        ErrorCode.WRITER_UNAVAILABLE,
        "no node with the range before can be reached",
        subject=f"{topic.name}-{stream.id.partition}",
    )


def _who_may_know(stream: Stream) -> list[NodeId]:
    ranges: list[Range] = list(stream.ranges[-2:])
    named = [node for range_info in ranges for node in (*range_info.holders, *range_info.replicas)]
    return list(dict.fromkeys(named))
