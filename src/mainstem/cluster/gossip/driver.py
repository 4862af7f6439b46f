"""Carries a node's gossip: datagrams for questions and news, streams to compare all that is known.

Promises: what no node of this cluster sealed is dropped and counted; a node that cannot be reached
is the machine's concern, never an error here.
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
    """One question, one answer, by a stream; fails with one of ``FAILURES``."""

    async def listen(self, host: str, port: int) -> Address:
        """Answer there, on any port if that is 0; the address."""
        ...

    async def ask(self, address: Address, question: bytes) -> bytes:
        """The answer to a question."""
        ...

    def close(self) -> None:
        """Answer no more."""
        ...


StateExchangeFactory = Callable[
    [GossipCipher, Callable[[bytes], bytes], Callable[[object, Corrupt], None]], StateExchange
]


class Gossip(asyncio.DatagramProtocol):
    """The gossip of one node on its sockets.

    Args:
        seal: keeps strangers out.
        clock: the time.
        on_change: called with every change in what is known of the members.
        exchanges: makes what carries streams; sockets of its own unless said otherwise.
    """

    def __init__(
        self,
        seal: GossipCipher,
        clock: Clock,
        on_change: Callable[[MemberChange], None] = lambda change: None,
        exchanges: StateExchangeFactory = StreamExchange,
    ) -> None:
        self.refused = 0  # what strangers sent
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
        """Listen where this node says it can be found, on any port if that is 0; the address.

        ``bind`` is where to listen instead, where others reach this node in another way.

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
        """Get to know the cluster through nodes that are in it.

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
        """The others that are believed to be there."""
        return self.swim.members()

    def announce(self, about: SelfDescription) -> None:
        """This node has something new to tell of itself."""
        self.swim.members_table.announce(about)
        self._wake()

    async def close(self, *, announce_leave: bool = True) -> None:
        """End; the others need not find out by themselves."""
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
        """Takes a packet in."""
        try:
            packet = decode_packet(self._seal.open(data))
        except Corrupt as error:
            self._refuse(addr, error)
            return
        source = Address(str(addr[0]), addr[1])
        self._carry_out(self.swim.on_packet(packet, source, self._clock.monotonic()))
        self._wake()

    def error_received(self, exc: Exception) -> None:
        """A node that is not there; the machine will notice."""
        _log.debug("gossip: %s", exc)

    def _refuse(self, source: object, error: Corrupt) -> None:
        self.refused += 1
        _log.warning("gossip from %s refused: %s", source, error)

    # Time.

    def _wake(self) -> None:
        """Come back when the machine has something to do."""
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
    """Who cannot be reached is asked again another time."""
    try:
        await work
    except FAILURES as error:
        _log.debug("gossip by a stream: %r", error)
