"""Requested moves: streams are handed over to their preferred writers without a fence.

    request ──▶ writer ──▶ its replicas have all ──▶ catalogue ──▶ preferred node writes

The writer hands over by itself, as when the placement leader orders it, so that nothing is lost
that it alone has acknowledged. An order names the epoch and the range it was given for, and may be
repeated. Nodes of earlier releases do not accept such orders, only those of the placement leader.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.cluster.peers.requests_service import PeerRequester
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt, MainstemError
from mainstem.model.ids import NO_NODE, NodeId, StreamId
from mainstem.placement.planning.election import preferred
from mainstem.placement.planning.reconciler import RollOrder
from mainstem.placement.state.catalogue import Catalogue

PAUSE_S: Final = 0.02
REPEAT_S: Final = 1.0
# A replica of a range that was just sealed reports within this time that it has all of it.
CATCH_UP_S: Final = 3.0
_log = logging.getLogger(__name__)
_orders = msgspec.msgpack.Decoder(tuple[RollOrder, ...])


class PlannedMoves:
    """Moves streams to their preferred writers on request.

    Args:
        node: this node.
        catalogue: knows the writer of each stream.
        peers: sends requests to other nodes.
        follow: carries orders out on this node.
    """

    def __init__(
        self,
        node: NodeId,
        catalogue: Catalogue,
        peers: PeerRequester,
        follow: Callable[[Sequence[RollOrder]], None],
    ) -> None:
        self._node = node
        self._catalogue = catalogue
        self._peers = peers
        self._follow = follow

    async def to_preferred(self, streams: Sequence[StreamId], timeout_s: float) -> set[StreamId]:
        """Hand streams over to their preferred writers; returns those that were moved in time."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + timeout_s
        catch_up = loop.time() + min(timeout_s, CATCH_UP_S)
        pending, moved = set(streams), set[StreamId]()
        asked: dict[RollOrder, float] = {}
        while True:
            orders: defaultdict[NodeId, list[RollOrder]] = defaultdict(list)
            for stream in tuple(pending):
                writer, order = self._next(stream)
                if writer == NO_NODE and loop.time() < catch_up:
                    continue
                if order is None:
                    pending.discard(stream)
                    if writer != NO_NODE:
                        moved.add(stream)
                elif asked.get(order, -REPEAT_S) <= loop.time() - REPEAT_S:
                    asked[order] = loop.time()
                    orders[writer].append(order)
            if not pending or loop.time() >= give_up:
                return moved
            await asyncio.gather(*(self._order(node, given) for node, given in orders.items()))
            await asyncio.sleep(PAUSE_S)

    async def serve(self, _: NodeId, body: memoryview) -> Sequence[Chunk]:
        """Handle orders from another node (``PeerService.MOVES``)."""
        try:
            orders = _orders.decode(body)
        except DECODE_ERRORS as error:
            raise Corrupt(f"malformed orders to writers: {error}") from error
        self._follow(orders)
        return []

    def _next(self, stream: StreamId) -> tuple[NodeId, RollOrder | None]:
        """A stream's writer and the order for it; None: it is moved, or (``NO_NODE``) cannot be."""
        known = self._catalogue.stream(stream)
        if known is None or known.writer == NO_NODE:
            return NO_NODE, None
        wanted = preferred(self._catalogue, known)
        if wanted is None:
            return NO_NODE, None
        if wanted == known.writer:
            return known.writer, None
        return known.writer, RollOrder(stream, known.epoch, known.last.index, wanted)

    async def _order(self, node: NodeId, orders: Sequence[RollOrder]) -> None:
        if node == self._node:
            self._follow(orders)
            return
        body = msgspec.msgpack.encode(orders)
        try:
            await self._peers.ask(node, PeerService.MOVES, [body], timeout_s=REPEAT_S)
        except MainstemError as error:
            _log.info("node %d accepts no orders to hand streams over now: %s", node, error)
