"""Transfer of rewritten ranges, compacted or joined, between nodes.

    writer rewrites ──▶ asks the replicas to copy it ──▶ enough have it ──▶ catalogue swaps

Guarantees: a range that was rewritten is swapped only when as many nodes have it on disk as
acknowledge its records; every byte is checked before it counts.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.log.disk.file_access import storage_error
from mainstem.log.folder_copy import FolderCopy, folder_files, read_piece
from mainstem.log.identity import RangeIdentity
from mainstem.log.naming import RangeName, range_directory
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Range, Topic
from mainstem.streams.context import StreamsContext
from mainstem.streams.replica.messages import (
    AnyMessage,
    AskFolder,
    AskPiece,
    AskTakeOver,
    FolderReply,
    PieceReply,
    RangeKey,
    TakenOver,
    decode,
    encode,
)

PIECE_BYTES: Final = 4 * 1024 * 1024
ASK_TIMEOUT_S: Final = 10.0
TAKE_OVER_TIMEOUT_S: Final = 600.0

_log = logging.getLogger(__name__)


class FolderCopyDriver:
    """Serves rewritten ranges to other nodes, and copies theirs."""

    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    async def answer(self, message: AnyMessage) -> Sequence[Chunk] | None:
        """The answer to a request about rewritten ranges; None: it is about something else."""
        match message:
            case AskFolder():
                files = folder_files(self._path(message.key, message.generation))
                return [encode(FolderReply(message.key, files))]
            case AskPiece():
                path = self._path(message.key, message.generation)
                size = min(message.size, PIECE_BYTES)
                read = partial(read_piece, path, message.name, message.position, size)
                data = await asyncio.get_running_loop().run_in_executor(None, read)
                return [encode(PieceReply(message.key)), data]
            case AskTakeOver():
                topic = self._topic(message.key)
                source = NodeId(message.source)
                identity = self._identity(
                    topic, message.key, message.generation, (message.epoch, message.start)
                )
                if identity.path(self._context.store.data_dir) not in self._context.store.logs:
                    await self._pull(message.key, identity, source)
                return [encode(TakenOver(message.key))]
            case _:
                return None

    async def take_over(
        self, topic: Topic, key: RangeKey, range_info: Range, source: NodeId
    ) -> None:
        """Copy a rewritten range that the catalogue lists onto this disk.

        Raises:
            MainstemError: it could not be copied from there.
        """
        identity = self._identity(
            topic, key, range_info.generation, (range_info.epoch, range_info.start)
        )
        await self._pull(key, identity, source)

    async def spread(self, key: RangeKey, range_info: Range, generation: int) -> tuple[NodeId, ...]:
        """Have the other holders of a range copy a new generation; the nodes that have it then.

        Raises:
            Unavailable: too few have it.
        """
        node = self._context.node
        others = [one for one in range_info.holders if one != node]
        asked = encode(AskTakeOver(key, generation, range_info.epoch, range_info.start, node))
        answers = await asyncio.gather(*(self._spread_to(one, asked) for one in others))
        done = (node, *(one for one, has_it in zip(others, answers, strict=True) if has_it))
        if len(done) < range_info.acks_needed:
            raise Unavailable(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(done)} nodes have generation {generation}, {range_info.acks_needed} must",
                subject=str(key.stream),
            )
        return done

    async def _spread_to(self, node: NodeId, asked: bytes) -> bool:
        try:
            await self._context.peers.ask(
                node, PeerService.RANGES, [asked], timeout_s=TAKE_OVER_TIMEOUT_S
            )
        except MainstemError as error:
            _log.info("node %d did not copy a rewritten range: %s", node, error)
            return False
        return True

    async def _pull(self, key: RangeKey, identity: RangeIdentity, source: NodeId) -> None:
        store = self._context.store
        target = identity.path(store.data_dir)
        if target in store.copying or target.parent in store.rewriting:
            raise Unavailable(ErrorCode.OVERLOADED, f"{target.name} is being written already")
        store.copying.add(target)
        try:
            await self._pull_files(key, identity, source)
        except OSError as error:
            raise storage_error(error, target) from error
        finally:
            store.copying.discard(target)

    async def _pull_files(self, key: RangeKey, identity: RangeIdentity, source: NodeId) -> None:
        generation = identity.name.generation
        listed, _ = await self._ask(source, AskFolder(key, generation))
        if not isinstance(listed, FolderReply):
            raise Corrupt(f"node {source} answers with {type(listed).__name__}")
        copy = FolderCopy(identity, self._context.store.data_dir)
        try:
            for name, size in listed.files:
                copy.write(name, 0, b"")
                at = 0
                while at < size:
                    question = AskPiece(key, generation, name, at, PIECE_BYTES)
                    _, data = await self._ask(source, question)
                    if not data:
                        raise Corrupt(f"{name} of node {source} ends at {at}, not at {size}")
                    await _in_thread(partial(copy.write, name, at, data))
                    at += len(data)
            await _in_thread(copy.publish)
        finally:
            copy.discard()

    async def _ask(self, node: NodeId, question: AnyMessage) -> tuple[AnyMessage, memoryview]:
        body = await self._context.peers.ask(
            node, PeerService.RANGES, [encode(question)], timeout_s=ASK_TIMEOUT_S
        )
        return decode(body)

    def _identity(
        self, topic: Topic, key: RangeKey, generation: int, stamp: tuple[int, int]
    ) -> RangeIdentity:
        name = RangeName(key.stream, topic.name, key.index, generation)
        return RangeIdentity(name, *stamp, self._context.store.directory_id)

    def _path(self, key: RangeKey, generation: int) -> Path:
        name = RangeName(key.stream, self._topic(key).name, key.index, generation)
        return range_directory(self._context.store.data_dir, name)

    def _topic(self, key: RangeKey) -> Topic:
        return self._context.placement.catalogue.need_topic(key.stream.topic)


async def _in_thread(work: Callable[[], None]) -> None:
    """Run a call on a thread; a cancelled caller waits for it: its files are still in use."""
    working = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.gather(working, return_exceptions=True)
        raise
