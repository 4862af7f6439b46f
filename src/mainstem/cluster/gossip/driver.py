"""Runs a node's gossip: datagrams for probes and claims, streams for full state exchanges.

Guarantees: what no node of this cluster sealed is dropped and counted; a node that cannot be
reached is left to the state machine and never raises an error here.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, cast

import msgspec

from mainstem.cluster.gossip.cipher import GossipCipher
from mainstem.cluster.gossip.member import Address, Claim, Member, MemberChange, SelfDescription
from mainstem.cluster.gossip.packets import (
    Everything,
    Packet,
    decode_everything,
    decode_packet,
    encode,
)
from mainstem.cluster.gossip.settings import GossipSettings
from mainstem.cluster.gossip.stream_transport import FAILURES, StreamExchange
from mainstem.cluster.gossip.swim import Swim, SwimEffects
from mainstem.model.clock import Clock
from mainstem.model.errors import Corrupt, ErrorCode, Unavailable

SEND_TASKS_MAX: Final = 64
_PING: Final = b"P"
_EVERYTHING: Final = b"E"

_log = logging.getLogger(__name__)


class StateExchange(Protocol):
    """One request and its response over a stream; fails with one of ``FAILURES``."""

    async def listen(self, host: str, port: int) -> Address:
        """Listen at this address, on any port if the port is 0; the address."""
        ...

    async def ask(self, address: Address, question: bytes) -> bytes:
        """The response to a request."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


StateExchangeFactory = Callable[
    [GossipCipher, Callable[[bytes], bytes], Callable[[object, Corrupt], None]], StateExchange
]


class Gossip(asyncio.DatagramProtocol):
    """The gossip of one node on its sockets.

    Args:
        seal: encrypts and authenticates messages.
        clock: the clock.
        on_change: called with every change of a known member.
        exchanges: makes the stream transport; by default one with its own sockets.
    """

    def __init__(
        self,
        seal: GossipCipher,
        clock: Clock,
        on_change: Callable[[MemberChange], None] = lambda change: None,
        exchanges: StateExchangeFactory = StreamExchange,
    ) -> None:
        self.refused = 0  # packets that no node of this cluster sealed
        self.swim: Swim
        self._seal = seal
        self._clock = clock
        self._on_change = on_change
        self._datagrams: asyncio.DatagramTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams = exchanges(seal, self._answer, self._refuse)

    async def start(
        self,
        own: Claim,
        settings: GossipSettings,
        chance: Callable[[], float],
        *,
        bind: Address | None = None,
    ) -> Address:
        """Listen at the address this node advertises, on any port if that is 0; the address.

        ``bind`` is a different address to listen at, if the advertised one cannot be bound.

        Raises:
            OSError: the address cannot be used.
        """
        loop = asyncio.get_running_loop()
        listening = await self._streams.listen(*(bind or own.about.address))
        address = listening if bind is None else own.about.address
        about = msgspec.structs.replace(own.about, address=address)
        claim = msgspec.structs.replace(own, about=about)
        self.swim = Swim(claim, settings, chance=chance, now_s=self._clock.monotonic())
        await loop.create_datagram_endpoint(lambda: self, local_addr=listening)
        self._wake()
        return address

    async def join(self, addresses: Sequence[Address]) -> None:
        """Join the cluster's gossip through nodes that are in it.

        Raises:
            Unavailable: none of them answers.
        """
        causes = []
        for address in addresses:
            try:
                await self._exchange(address)
            except FAILURES as error:
                causes.append(f"{address.host}:{address.port}: {error!r}")
        if len(causes) == len(addresses):
            raise Unavailable(
                ErrorCode.WRITER_UNAVAILABLE,
                f"no node of the cluster answers ({'; '.join(causes)})",
                remedy="check the addresses, and that all nodes have the same cluster secret",
            )

    def members(self) -> list[Member]:
        """The other members that are believed to be running."""
        return self.swim.members()

    def announce(self, about: SelfDescription) -> None:
        """This node's own metadata has changed."""
        self.swim.members_table.announce(about)
        self._wake()

    async def close(self, *, announce_leave: bool = True) -> None:
        """Leave and stop; the other nodes are notified."""
        if announce_leave:
            self._carry_out(self.swim.leave(self._clock.monotonic()))
        if self._timer is not None:
            self._timer.cancel()
        self._streams.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._datagrams is not None:
            self._datagrams.close()

    # Datagrams.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Notes the transport."""
        # A cast, since uvloop's transports are not subclasses.
        self._datagrams = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        """Handle a packet."""
        try:
            packet = decode_packet(self._seal.open(data))
        except Corrupt as error:
            self._refuse(addr, error)
            return
        source = Address(str(addr[0]), addr[1])
        self._carry_out(self.swim.on_packet(packet, source, self._clock.monotonic()))
        self._wake()

    def error_received(self, exc: Exception) -> None:
        """The destination is unreachable; the state machine detects that by its probes."""
        _log.debug("gossip: %s", exc)

    def _refuse(self, source: object, error: Corrupt) -> None:
        self.refused += 1
        _log.warning("gossip from %s refused: %s", source, error)

    # Timers.

    def _wake(self) -> None:
        """Schedule the next call of the state machine."""
        if self._timer is not None:
            self._timer.cancel()
        pause_s = self.swim.next_deadline_s() - self._clock.monotonic()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, pause_s), self._tick)

    def _tick(self) -> None:
        self._carry_out(self.swim.on_tick(self._clock.monotonic()))
        self._wake()

    def _carry_out(self, effects: SwimEffects) -> None:
        for address, packet in effects.datagrams:
            self._send(address, packet)
        for address, number in effects.stream_pings:
            self._run(self._ping(address, number))
        for address in effects.exchanges:
            self._run(self._exchange(address))
        for change in effects.changes:
            self._on_change(change)

    def _send(self, address: Address, packet: Packet) -> None:
        if self._datagrams is not None and not self._datagrams.is_closing():
            self._datagrams.sendto(self._seal.seal(encode(packet)), address)

    # StreamExchange.

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        if len(self._tasks) >= SEND_TASKS_MAX:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _answer(self, question: bytes) -> bytes:
        if question[:1] != _EVERYTHING:
            return _PING
        answer = encode(self.swim.everything())
        self._take(decode_everything(question[1:]))
        return answer

    async def _ping(self, address: Address, number: int) -> None:
        await self._streams.ask(address, _PING)
        self.swim.on_sign_of_life(number)

    async def _exchange(self, address: Address) -> None:
        answer = await self._streams.ask(address, _EVERYTHING + encode(self.swim.everything()))
        self._take(decode_everything(answer))

    def _take(self, found: Everything) -> None:
        self._carry_out(self.swim.on_everything(found, self._clock.monotonic()))
        self._wake()


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    """A node that cannot be reached is contacted again in a later exchange."""
    try:
        await work
    except FAILURES as error:
        _log.debug("gossip by a stream: %r", error)
