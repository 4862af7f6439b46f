"""The gossip of one node as a pure machine: packets and time in, packets to send out.

Guarantees: every member is probed regularly; one that answers neither this node nor others is
suspected, is sent the suspicion, and counts as dead unless it refutes it; every change
reaches all members. The result is a hint; no node is fenced because of it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from mainstem.cluster.gossip.broadcast_queue import BroadcastQueue
from mainstem.cluster.gossip.member import Address, Claim, GossipState, Member, MemberChange
from mainstem.cluster.gossip.member_table import MemberTable
from mainstem.cluster.gossip.packets import (
    NOBODY,
    VERSION,
    Everything,
    Packet,
    PacketKind,
    size_bytes,
)
from mainstem.cluster.gossip.probing import Prober
from mainstem.cluster.gossip.settings import GossipSettings
from mainstem.model.ids import NodeId

# Bytes of a packet besides its claims, sealed: generous, so that a datagram is not fragmented.
PACKET_OVERHEAD_BYTES = 120
RELAYS_MAX = 1_024


class SwimEffects(NamedTuple):
    """What the driver carries out, in this order."""

    datagrams: Sequence[tuple[Address, Packet]] = ()
    stream_pings: Sequence[tuple[Address, int]] = ()  # address, sequence number
    exchanges: Sequence[Address] = ()  # members to exchange full state with
    changes: Sequence[MemberChange] = ()


class Swim:
    """Decides the gossip (SWIM) of one node; does no I/O.

    Args:
        own: this node's claim about itself.
        settings: times and numbers.
        chance: returns a new random number in [0, 1) each time.
        now_s: seconds of a clock that never goes back, as in every later call.
    """

    def __init__(
        self, own: Claim, settings: GossipSettings, *, chance: Callable[[], float], now_s: float
    ) -> None:
        self._settings = settings
        self._broadcasts = BroadcastQueue(settings.retransmit_factor, size_bytes)
        self.members_table = MemberTable(own, settings, self._broadcasts)
        self._prober = Prober(settings, chance)
        self._relays: dict[int, _Relay] = {}
        # Random, so that nodes that start together do not probe at the same time.
        self._gossip_at_s = now_s + settings.gossip_interval_s * chance()
        self._exchange_at_s = now_s + settings.exchange_interval_s * (0.5 + chance())
        self._probe_at_s = now_s + settings.probe_interval_s * chance()

    @property
    def health(self) -> int:
        """The health score of this node; 0 is healthy."""
        return self._prober.health

    def members(self) -> list[Member]:
        """The other members that are believed to be running."""
        return [member for member in self.members_table if not member.state.is_gone]

    def next_deadline_s(self) -> float:
        """When ``on_tick`` has something to do."""
        due = [self._exchange_at_s, self.members_table.next_expiry_s()]
        if len(self._broadcasts):
            due.append(self._gossip_at_s)
        going = self._prober.round
        if going is None:
            due.append(self._probe_at_s)
        else:
            due.append(going.ends_at_s)
            if going.asked_others_at_s is not None and not going.is_answered:
                due.append(going.asked_others_at_s)
        due += [relay.ends_at_s for relay in self._relays.values()]
        return min(due)

    def on_tick(self, now_s: float) -> SwimEffects:
        """Time has passed."""
        changes = self.members_table.expire(now_s)
        datagrams: list[tuple[Address, Packet]] = []
        stream_pings: list[tuple[Address, int]] = []
        exchanges: list[Address] = []
        self._end_relays(now_s, datagrams)
        change = self._end_round(now_s)
        if change is not None:
            changes.append(change)
        self._ask_others(now_s, datagrams, stream_pings)
        self._begin_round(now_s, datagrams)
        if now_s >= self._gossip_at_s:
            self._gossip_at_s = now_s + self._settings.gossip_interval_s
            datagrams += self._spread(now_s)
        if now_s >= self._exchange_at_s:
            self._exchange_at_s = now_s + self._settings.exchange_interval_s
            exchanges += self._partners()
        return SwimEffects(datagrams, stream_pings, exchanges, changes)

    def on_packet(self, packet: Packet, source: Address, now_s: float) -> SwimEffects:
        """A datagram has arrived."""
        changes = self._receive(packet.claims, now_s)
        datagrams: list[tuple[Address, Packet]] = []
        match packet.kind:
            case PacketKind.PING if packet.target == self.members_table.own.node:
                datagrams.append((source, self._packet(PacketKind.ACK, packet.number)))
            case PacketKind.PROBE:
                self._relay(packet, source, now_s, datagrams)
            case PacketKind.ACK:
                self.on_sign_of_life(packet.number)
                relay = self._relays.pop(packet.number, None)
                if relay is not None:
                    datagrams.append((relay.source, self._packet(PacketKind.ACK, relay.number)))
            case PacketKind.NACK:
                self._prober.refused(packet.number)
            case _:
                pass  # claims only, or a probe for a node that had this address before
        return SwimEffects(datagrams=datagrams, changes=changes)

    def on_sign_of_life(self, number: int) -> None:
        """A probe was answered, by datagram or by stream."""
        self._prober.answered(number)

    def everything(self) -> Everything:
        """All claims that this node knows, for a full state exchange."""
        return Everything(VERSION, self.members_table.own.node, self.members_table.claims())

    def on_everything(self, found: Everything, now_s: float) -> SwimEffects:
        """Apply the full state of another node."""
        return SwimEffects(changes=self._receive(found.claims, now_s))

    def leave(self, now_s: float) -> SwimEffects:
        """Leave: some members are notified at once, and gossip it to the others."""
        self.members_table.leave()
        return SwimEffects(datagrams=self._spread(now_s))

    def _receive(self, claims: Sequence[Claim], now_s: float) -> list[MemberChange]:
        before = self.members_table.contradictions
        changes = [self.members_table.receive(claim, now_s) for claim in claims]
        if self.members_table.contradictions > before:
            self._prober.adjust_health(1)  # others suspected this node
        return [change for change in changes if change is not None]

    def _begin_round(self, now_s: float, datagrams: list[tuple[Address, Packet]]) -> None:
        if self._prober.round is not None or now_s < self._probe_at_s:
            return
        going = self._prober.begin(self.members(), now_s)
        if going is None:
            self._probe_at_s = now_s + self._settings.probe_interval_s
            return
        target = self._member(going.target)
        ping = self._packet(PacketKind.PING, going.number, target=target.node, about=target)
        datagrams.append((target.address, ping))

    def _ask_others(
        self,
        now_s: float,
        datagrams: list[tuple[Address, Packet]],
        stream_pings: list[tuple[Address, int]],
    ) -> None:
        going = self._prober.round
        if going is None or going.is_answered or going.asked_others_at_s is None:
            return
        if now_s < going.asked_others_at_s:
            return
        going.asked_others_at_s = None
        target = self._member(going.target)
        well = [m for m in self.members() if m.node != target.node and m.state is GossipState.ALIVE]
        helpers = self._prober.some(well, self._settings.indirect_probes)
        going.helpers = len(helpers)
        for helper in helpers:
            question = self._packet(PacketKind.PROBE, going.number, target=target.node)
            to_target = msgspec.structs.replace(question, address=target.address)
            datagrams.append((helper.address, to_target))
        # If only datagrams are lost, the node is still running.
        stream_pings.append((target.address, going.number))

    def _end_round(self, now_s: float) -> MemberChange | None:
        going = self._prober.round
        if going is None or now_s < going.ends_at_s:
            return None
        self._probe_at_s = now_s
        silent = self._prober.end()
        return None if silent is None else self.members_table.suspect(silent, now_s)

    def _relay(
        self,
        packet: Packet,
        source: Address,
        now_s: float,
        datagrams: list[tuple[Address, Packet]],
    ) -> None:
        """Probe a node on behalf of another."""
        if len(self._relays) >= RELAYS_MAX:
            return
        number = self._prober.next_number()
        ends_at_s = now_s + 0.8 * self._settings.probe_timeout_s
        self._relays[number] = _Relay(packet.number, source, ends_at_s)
        question = self._packet(PacketKind.PING, number, target=packet.target)
        datagrams.append((packet.address, question))

    def _end_relays(self, now_s: float, datagrams: list[tuple[Address, Packet]]) -> None:
        for number, relay in list(self._relays.items()):
            if relay.ends_at_s <= now_s:
                del self._relays[number]
                datagrams.append((relay.source, self._packet(PacketKind.NACK, relay.number)))

    def _spread(self, now_s: float) -> list[tuple[Address, Packet]]:
        """Send claims to some members; recently failed ones get them too, to refute them."""
        if not len(self._broadcasts):
            return []
        recent_s = now_s - self._settings.gossip_to_gone_s
        listeners = [m for m in self.members_table if not m.state.is_gone or m.since_s > recent_s]
        chosen = self._prober.some(listeners, self._settings.gossip_fanout)
        packets = [(member.address, self._packet(PacketKind.CLAIMS, 0)) for member in chosen]
        return [(address, packet) for address, packet in packets if packet.claims]

    def _partners(self) -> list[Address]:
        """Choose members for a full state exchange: a live one, and one that counts as dead.

        This is the only way in which two halves of a partitioned cluster find each other again.
        """
        dead = [member for member in self.members_table if member.state is GossipState.DEAD]
        chosen = [*self._prober.some(self.members(), 1), *self._prober.some(dead, 1)]
        return [member.address for member in chosen]

    def _packet(
        self, kind: PacketKind, number: int, *, target: NodeId = NOBODY, about: Member | None = None
    ) -> Packet:
        """A packet with as many claims as fit; a suspect gets its own suspicion first."""
        budget = self._settings.packet_bytes_max - PACKET_OVERHEAD_BYTES
        first: tuple[Claim, ...] = ()
        if about is not None and about.state is not GossipState.ALIVE:
            first = (about.claim,)
            budget -= size_bytes(about.claim)
        broadcast = self._broadcasts.take(self.members_table.size_known, budget)
        return Packet(
            kind, self.members_table.own.node, number, target, claims=(*first, *broadcast)
        )

    def _member(self, node: NodeId) -> Member:
        member = self.members_table.get(node)
        assert member is not None, "only known members are probed"
        return member


class _Relay(NamedTuple):
    """A probe on behalf of another node."""

    number: int
    source: Address
    ends_at_s: float
