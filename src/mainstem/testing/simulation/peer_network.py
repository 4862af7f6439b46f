"""Simulated network between nodes of one process: in-order delivery, with delays and losses.

The connection between two nodes can be cut, in one direction or both; messages in flight are then
lost, as when a connection ends. Messages larger than a frame are not sent. On a virtual loop the
sequence of events depends only on the seed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from random import Random

from mainstem.cluster.peers.connection_transport import too_large
from mainstem.cluster.peers.error_codec import Unreachable, decode_error, encode_error
from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import NodeId
from mainstem.model.limits import PEER_FRAME_BYTES_MAX

Handler = Callable[[NodeId, memoryview], Awaitable[Sequence[Chunk]]]
NoteHandler = Callable[[NodeId, memoryview], None]


class PeerNetwork:
    """Connects nodes of one process without sockets.

    Args:
        delay_s: the longest delay of a message.
        rng: decides the delay of each; None: all take ``delay_s``.
    """

    def __init__(self, delay_s: float = 0.0, rng: Random | None = None) -> None:
        self.delay_s = delay_s
        self.messages = 0
        self.frame_bytes_max = PEER_FRAME_BYTES_MAX
        self.unsent: list[MainstemError] = []  # notes and answers that were too large
        self._rng = rng
        self._nodes: dict[NodeId, NetworkPeers] = {}
        self._cuts: set[tuple[NodeId, NodeId]] = set()
        self._slow: dict[tuple[NodeId, NodeId], float] = {}
        self._contexts: dict[NodeId, Context] = {}
        self._due: dict[tuple[NodeId, NodeId], float] = {}

    def join(self, node: NodeId) -> "NetworkPeers":
        """Connect a node that has started; messages to its earlier incarnation are lost."""
        peers = self._nodes[node] = NetworkPeers(self, node)
        self._contexts[node] = copy_context()
        return peers

    def leave(self, node: NodeId) -> None:
        """Disconnect a node that has ended."""
        self._nodes.pop(node, None)

    def cut(self, source: NodeId, target: NodeId) -> None:
        """Drop all messages from one node to another."""
        self._cuts.add((source, target))

    def isolate(self, node: NodeId) -> None:
        """Drop all messages from and to a node."""
        for other in self._nodes:
            self._cuts |= {(node, other), (other, node)}

    def slow_down(self, source: NodeId, target: NodeId, by_s: float) -> None:
        """Add a delay to all messages from one node to another."""
        self._slow[source, target] = by_s

    def heal(self) -> None:
        """End all cuts and delays."""
        self._cuts.clear()
        self._slow.clear()

    def reaches(self, source: NodeId, target: NodeId) -> bool:
        """Whether a message can be delivered now."""
        return target in self._nodes and (source, target) not in self._cuts

    def carry(
        self, source: NodeId, target: NodeId, deliver: Callable[..., None], *args: object
    ) -> None:
        """Deliver after a delay, in order, if the connection and both nodes still exist."""
        self.messages += 1
        loop, way, nodes = asyncio.get_running_loop(), (source, target), self._nodes
        delay_s = self.delay_s if self._rng is None else self.delay_s * self._rng.random()
        if self._slow:
            delay_s += self._slow.get(way, 0.0)
        due = self._due[way] = max(loop.time() + delay_s, self._due.get(way, 0.0))
        ends = nodes.get(source), nodes.get(target)
        context = self._contexts.get(target)
        loop.call_at(due, self._arrive, way, ends, deliver, args, context=context)

    def _arrive(
        self,
        way: tuple[NodeId, NodeId],
        ends: "tuple[NetworkPeers | None, NetworkPeers | None]",
        deliver: Callable[..., None],
        args: tuple[object, ...],
    ) -> None:
        source, target = way
        sender, receiver = ends
        is_same = self._nodes.get(source) is sender and self._nodes.get(target) is receiver
        if is_same and receiver is not None and way not in self._cuts:
            deliver(*args)

    def peers_of(self, node: NodeId) -> "NetworkPeers":
        """The peers of one node."""
        return self._nodes[node]


class NetworkPeers:
    """One node's side of the network; implements ``Peers`` without sockets."""

    def __init__(self, network: PeerNetwork, node: NodeId) -> None:
        self._network = network
        self._node = node
        self._handlers: dict[int, Handler] = {}
        self._note_handlers: dict[int, NoteHandler] = {}
        self._answering: set[asyncio.Task[None]] = set()

    def serve(self, service: PeerService, handler: Handler) -> None:
        """Register the request handler of a service."""
        self._handlers[service] = handler

    def on_note(self, service: PeerService, handler: NoteHandler) -> None:
        """Register the notification handler of a service."""
        self._note_handlers[service] = handler

    def note(self, node: NodeId, service: PeerService, chunks: Sequence[Chunk]) -> bool:
        """Send a notification to a node; False if that is impossible now."""
        if not self._network.reaches(self._node, node):
            return False
        body = memoryview(b"".join(chunks))
        if len(body) > self._network.frame_bytes_max:
            self._network.unsent.append(self._too_large(service, body))
            return False
        # The current incarnation: if another one runs when the message arrives, it is lost.
        receiver = self._network.peers_of(node)
        self._network.carry(self._node, node, receiver._take_note, self._node, service, body)
        return True

    def _take_note(self, source: NodeId, service: PeerService, body: memoryview) -> None:
        handle = self._note_handlers.get(service)
        if handle is not None:
            handle(source, body)

    async def ask(
        self, node: NodeId, service: PeerService, chunks: Sequence[Chunk], *, timeout_s: float
    ) -> memoryview:
        """Send a request to a node and return its answer."""
        if not self._network.reaches(self._node, node):
            raise Unreachable(f"node {node} cannot be reached")
        body = memoryview(b"".join(chunks))
        if len(body) > self._network.frame_bytes_max:
            raise self._too_large(service, body)
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

        def deliver() -> None:
            self._network.peers_of(node)._take(self._node, service, body, answer)

        self._network.carry(self._node, node, deliver)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise Unavailable(ErrorCode.TIMED_OUT, f"node {node} did not answer") from None

    def _too_large(self, service: PeerService, body: memoryview) -> MainstemError:
        return too_large(service, len(body), self._network.frame_bytes_max)

    def _take(
        self,
        source: NodeId,
        service: PeerService,
        body: memoryview,
        answer: "asyncio.Future[memoryview]",
    ) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(source, service, body, answer))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(
        self,
        source: NodeId,
        service: PeerService,
        body: memoryview,
        answer: "asyncio.Future[memoryview]",
    ) -> None:
        handler = self._handlers.get(service)
        refusal: bytes | None = None
        chunks: Sequence[Chunk] = ()
        try:
            if handler is None:
                raise Unreachable("no handler is registered for this service yet")
            chunks = await handler(source, body)
        except MainstemError as error:
            refusal = encode_error(error)
        response = memoryview(b"".join(chunks))
        if len(response) > self._network.frame_bytes_max:
            unsent = self._too_large(service, response)
            self._network.unsent.append(unsent)
            refusal = encode_error(unsent)

        def deliver() -> None:
            if answer.done():
                return
            if refusal is not None:
                answer.set_exception(decode_error(refusal))
            else:
                answer.set_result(response)

        self._network.carry(self._node, source, deliver)
