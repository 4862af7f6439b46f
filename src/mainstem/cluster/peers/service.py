"""Connections to the other nodes: send requests and notes, and serve theirs.

One connection to each node is dialled on demand and shared; connections that other nodes dial are
used to answer them. Guarantees: requests to one node are sent in the order of the calls; an
unreachable node is dialled again after a growing delay, and at once when it makes contact;
a request for a service without a handler is refused. When the last connection with a node has
ended, ``watcher`` checks whether its process has.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from mainstem.cluster.peers.connection_transport import PeerConnection
from mainstem.cluster.peers.error_codec import Unreachable
from mainstem.cluster.peers.frames import Chunk, Frame, FrameKind, PeerService
from mainstem.cluster.peers.handshake import CHANCE_BYTES, Handshake, Hello, Side, own_hello
from mainstem.cluster.peers.versions import OWN_VERSIONS, Versions
from mainstem.cluster.peers.watcher_service import PeerWatcher, refuses
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import NodeId

DIAL_TIMEOUT_S: Final = 5.0
PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 5.0
UNAUTHENTICATED_MAX: Final = 128
# Time-out of the check whether a machine refuses connections.
LOOK_S: Final = 0.3
_log = logging.getLogger(__name__)

Address = tuple[str, int]
# The requester and its request; the chunks of the answer.
Handler = Callable[[NodeId, memoryview], Awaitable[Sequence[Chunk]]]
NoteHandler = Callable[[NodeId, memoryview], None]


class PeerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How this node identifies itself to the others.

    Args:
        cluster: the cluster's name.
        node: this node.
        broker_epoch: this node's incarnation.
        secrets: the cluster's secrets, the current one first.
        tls_listen: TLS of accepted connections; None: no TLS.
        tls_dial: TLS of dialled connections.
        allows_cleartext: whether nodes of a release without encryption may be on other machines.
        versions: which versions of the protocol between nodes this one supports.
    """

    cluster: str
    node: NodeId
    broker_epoch: int
    secrets: tuple[bytes, ...]
    tls_listen: ssl.SSLContext | None = None
    tls_dial: ssl.SSLContext | None = None
    allows_cleartext: bool = False
    versions: Versions = OWN_VERSIONS


class Peers:
    """Sends notes and requests to other nodes and serves theirs.

    Args:
        settings: how this node identifies itself.
        address_of: the address of a node, if it is known.
        random_bytes: returns so many unpredictable bytes.
    """

    def __init__(
        self,
        settings: PeerSettings,
        address_of: Callable[[NodeId], Address | None],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._settings = settings
        self._address_of = address_of
        self._random_bytes = random_bytes
        self._handlers: dict[int, Handler] = {}
        self._note_handlers: dict[int, NoteHandler] = {}
        self._lines: dict[NodeId, _Line] = {}
        self._accepted: dict[PeerConnection, NodeId | None] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.watcher = PeerWatcher(
            lambda node: self.is_refused(node, timeout_s=LOOK_S),
            lambda node: (
                node in self._accepted.values()
                or (node in self._lines and self._lines[node].is_open)
            ),
        )

    def belong_to(self, cluster: str) -> None:
        """Set the name of the cluster that this node has joined."""
        self._settings = msgspec.structs.replace(self._settings, cluster=cluster)

    def know(self, secrets: tuple[bytes, ...]) -> None:
        """The cluster's secrets have changed: the new ones apply to new connections."""
        self._settings = msgspec.structs.replace(self._settings, secrets=secrets)

    def require(self, version: int) -> None:
        """Refuse nodes that support only older versions, and close connections that use one."""
        highest = self._settings.versions.highest
        lowest = min(max(version, OWN_VERSIONS.lowest), highest)
        self._settings = msgspec.structs.replace(self._settings, versions=Versions(lowest, highest))
        dialled = [line.current for line in self._lines.values() if line.current is not None]
        for connection in [*dialled, *self._accepted]:
            if connection.is_open and connection.version < lowest:
                cause = f"the cluster requires version {lowest} of the protocol between nodes"
                connection.close(Unreachable(cause))

    def version_of(self, node: NodeId) -> int | None:
        """The version that this node and another one use; None without an open connection."""
        line = self._lines.get(node)
        if line is not None and line.current is not None and line.current.is_open:
            return line.current.version
        found = (each for each, known in self._accepted.items() if known == node and each.is_open)
        return next((connection.version for connection in found), None)

    def serve(self, service: PeerService, handler: Handler) -> None:
        """Register the handler of a service's requests."""
        self._handlers[service] = handler

    def on_note(self, service: PeerService, handler: NoteHandler) -> None:
        """Register the handler of a service's notes."""
        self._note_handlers[service] = handler

    async def listen(self, host: str, port: int) -> Address:
        """Accept connections of other nodes, on any port if the port is 0; the address."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._accept, host, port, ssl=self._settings.tls_listen
        )
        found = self._server.sockets[0].getsockname()
        return str(found[0]), int(found[1])

    def note(self, node: NodeId, service: PeerService, chunks: Sequence[Chunk]) -> bool:
        """Send a note to a node; False if that is not possible now."""
        return self._line(node).note(service, chunks)

    async def ask(
        self, node: NodeId, service: PeerService, chunks: Sequence[Chunk], *, timeout_s: float
    ) -> memoryview:
        """A node's answer.

        Raises:
            Unreachable: the request was not sent.
            Unavailable: no answer in time, or the connection ended: the node may have acted.
            Corrupt: the process at that address is not that node of this cluster.
            MainstemError: the node's refusal.
        """
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._line(node).connection()
                return await connection.ask(service, chunks)
        except TimeoutError:
            cause = f"node {node} did not answer in {timeout_s:.3g} s"
            raise Unavailable(ErrorCode.TIMED_OUT, cause) from None

    async def ask_at(
        self, address: Address, service: PeerService, chunks: Sequence[Chunk], *, timeout_s: float
    ) -> memoryview:
        """The answer of the node at an address, whichever it is; raises as ``ask`` does."""
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connect(
                    address, _handshake(self._settings, self._random_bytes, "dialler", None)
                )
                try:
                    return await connection.ask(service, chunks)
                finally:
                    connection.close()
        except TimeoutError:
            cause = f"{address[0]}:{address[1]} did not answer in {timeout_s:.3g} s"
            raise Unavailable(ErrorCode.TIMED_OUT, cause) from None

    async def is_refused(self, node: NodeId, *, timeout_s: float) -> bool:
        """Whether the machine of a node reports that no process listens there.

        A machine or a network that does not answer leaves that open.
        """
        address = self._address_of(node)
        return address is not None and await refuses(address, timeout_s)

    async def close(self) -> None:
        """Close every connection."""
        await self.watcher.close()
        if self._server is not None:
            self._server.close()
        for line in self._lines.values():
            await line.close()
        for connection in list(self._accepted):
            connection.close()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    # Dialled connections.

    def _line(self, node: NodeId) -> "_Line":
        line = self._lines.get(node)
        if line is None:
            line = self._lines[node] = _Line(lambda: self._dial(node))
        return line

    async def _dial(self, node: NodeId) -> PeerConnection:
        address = self._address_of(node)
        if address is None:
            raise Unreachable(f"the address of node {node} is not known")
        try:
            handshake = _handshake(self._settings, self._random_bytes, "dialler", node)
            return await self._connect(address, handshake, lambda: self.watcher.disconnected(node))
        except Unreachable as error:
            raise Unreachable(f"node {node} at {error.cause}") from error

    async def _connect(
        self, address: Address, handshake: Handshake, ended: Callable[[], None] = lambda: None
    ) -> PeerConnection:
        context = self._settings.tls_dial

        def made() -> PeerConnection:
            return PeerConnection(handshake, take=self._take, ended=lambda *_: ended())

        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                _, connection = await loop.create_connection(
                    made, *address, ssl=context, server_hostname=address[0] if context else None
                )
                try:
                    await asyncio.shield(connection.proved)
                except BaseException:
                    connection.close()
                    raise
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"{address[0]}:{address[1]} cannot be reached: {error!r}") from error
        return connection

    # Accepted connections.

    def _accept(self) -> PeerConnection:
        connection = PeerConnection(
            _handshake(self._settings, self._random_bytes, "listener", None),
            take=self._take,
            ended=self._gone,
        )
        unknown = [each for each, node in self._accepted.items() if node is None]
        if len(unknown) >= UNAUTHENTICATED_MAX:
            # A node authenticates at once; the connection that has waited longest is not a node's.
            cause = "too many unauthenticated connections"
            unknown[0].close(Unavailable(ErrorCode.OVERLOADED, cause))
        self._accepted[connection] = None
        asyncio.get_running_loop().call_later(DIAL_TIMEOUT_S, _check_known, connection)
        connection.proved.add_done_callback(lambda proved: self._proved(connection, proved))
        return connection

    def _proved(self, connection: PeerConnection, proved: "asyncio.Future[Hello]") -> None:
        if proved.exception() is None and connection in self._accepted:
            hello = proved.result()
            self._accepted[connection] = hello.node
            if (line := self._lines.get(hello.node)) is not None:
                line.wake(hello)

    def _gone(self, connection: PeerConnection, error: MainstemError) -> None:
        node = self._accepted.pop(connection, None)
        _log.debug("a node's connection ended: %s", error)
        if node is not None:
            self.watcher.disconnected(node)

    def _take(self, connection: PeerConnection, frame: Frame) -> None:
        if frame.kind is FrameKind.NOTE:
            if (handle := self._note_handlers.get(frame.service)) is not None:
                handle(connection.proved.result().node, frame.body)
            return
        handler = self._handlers.get(frame.service)
        if handler is None:
            # The node is starting: the requester is asked to retry.
            connection.refuse(frame, Unreachable(f"{frame.service} is not served here yet"))
            return
        task = asyncio.get_running_loop().create_task(_serve(connection, frame, handler))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        task.add_done_callback(lambda task: _check_served(connection, task))


def _handshake(
    settings: PeerSettings,
    random_bytes: Callable[[int], bytes],
    side: Side,
    expected: NodeId | None,
) -> Handshake:
    # Imported late: its ciphers take 7 MB, which a single node does not need.
    from mainstem.cluster.peers.session_keys import KeyExchange  # noqa: PLC0415

    exchange = KeyExchange(random_bytes)
    own = own_hello(
        cluster=settings.cluster,
        node=settings.node,
        broker_epoch=settings.broker_epoch,
        chance=random_bytes(CHANCE_BYTES),
        share=exchange.share,
        versions=settings.versions,
    )
    clear = settings.allows_cleartext
    return Handshake(side, own, exchange, settings.secrets, expected, allows_cleartext=clear)


def _check_served(connection: PeerConnection, task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a request of another node raised an unexpected error", exc_info=error)
        connection.close(Unavailable(ErrorCode.INTERNAL, f"{error!r}"))


def _check_known(connection: PeerConnection) -> None:
    if not connection.proved.done():
        connection.close(Unavailable(ErrorCode.TIMED_OUT, "no handshake in time"))


async def _serve(connection: PeerConnection, frame: Frame, handler: Handler) -> None:
    try:
        connection.answer(frame, await handler(connection.proved.result().node, frame.body))
    except MainstemError as error:
        connection.refuse(frame, error)


class _Line:
    """The link to one node: at most one dial at a time, shared by all waiting calls, in order."""

    def __init__(self, dial: Callable[[], Awaitable[PeerConnection]]) -> None:
        self._dial = dial
        self._connection: PeerConnection | None = None
        self._dialling: asyncio.Task[PeerConnection] | None = None
        self._turn = asyncio.Lock()
        self._pause_s = PAUSE_S_MIN
        self._not_before_s = 0.0
        self._woken = asyncio.Event()

    @property
    def current(self) -> PeerConnection | None:
        """The latest connection, which may have ended."""
        return self._connection

    @property
    def is_open(self) -> bool:
        """Whether there is an open connection now."""
        return self._connection is not None and self._connection.is_open

    def wake(self, hello: Hello) -> None:
        """The node made contact: dial now if needed; its former process has ended."""
        connection = self._connection
        if connection is not None and connection.proved.result().broker_epoch < hello.broker_epoch:
            connection.close(Unreachable("a newer process of the node has made contact"))
        self._pause_s = PAUSE_S_MIN
        self._not_before_s = 0.0
        self._woken.set()

    def note(self, service: PeerService, chunks: Sequence[Chunk]) -> bool:
        connection = self._connection
        if connection is None or not connection.is_open:
            self._begin()
            return False
        return connection.note(service, chunks)

    async def connection(self) -> PeerConnection:
        # Taken before the turn comes: one failure applies to all calls that waited for that dial.
        dial = None if self.is_open else self._begin()
        async with self._turn:
            if dial is None and self._connection is not None and self._connection.is_open:
                return self._connection
            return await asyncio.shield(dial or self._begin())

    async def close(self) -> None:
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.gather(self._dialling, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()

    def _begin(self) -> "asyncio.Task[PeerConnection]":
        if self._dialling is None:
            self._dialling = asyncio.get_running_loop().create_task(self._open())
            self._dialling.add_done_callback(self._opened)
        return self._dialling

    async def _open(self) -> PeerConnection:
        loop = asyncio.get_running_loop()
        self._woken.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._not_before_s):
                await self._woken.wait()
        try:
            connection = await self._dial()
        except BaseException:
            self._not_before_s = loop.time() + self._pause_s
            self._pause_s = min(PAUSE_S_MAX, self._pause_s * 2)
            raise
        self._pause_s = PAUSE_S_MIN
        self._connection = connection
        return connection

    def _opened(self, dial: "asyncio.Task[PeerConnection]") -> None:
        self._dialling = None
        if not dial.cancelled():
            dial.exception()  # waiting calls have the exception; there may be none
