"""The members known to this node: ranks claims, suspects members, refutes claims about itself.

Pure. Guarantees: a claim that does not outrank what is known changes nothing; a bad claim about
this node is refuted with a higher incarnation; every change is queued for the other nodes.
"""

from collections.abc import Iterator

import msgspec

from mainstem.cluster.gossip.broadcast_queue import BroadcastQueue
from mainstem.cluster.gossip.member import Claim, GossipState, Member, MemberChange, SelfDescription
from mainstem.cluster.gossip.settings import GossipSettings
from mainstem.cluster.gossip.suspicion import Suspicion
from mainstem.model.ids import NodeId


class MemberTable:
    """The members of the cluster.

    Args:
        own: this node's claim about itself.
        settings: times and numbers.
        broadcasts: queue for changes that are to be gossiped.
    """

    def __init__(self, own: Claim, settings: GossipSettings, broadcasts: BroadcastQueue) -> None:
        self.own = own
        self.contradictions = 0
        self._settings = settings
        self._broadcasts = broadcasts
        self._members: dict[NodeId, Member] = {}
        self._suspicions: dict[NodeId, Suspicion] = {}
        broadcasts.put(own)

    def __iter__(self) -> Iterator[Member]:
        """Every other member, also those that left or are dead."""
        return iter(self._members.values())

    def get(self, node: NodeId) -> Member | None:
        """Another member, if it is known."""
        return self._members.get(node)

    @property
    def size(self) -> int:
        """How many members are believed to be running, this node included."""
        return 1 + sum(not member.state.is_gone for member in self)

    @property
    def size_known(self) -> int:
        """How many members are known, left and dead ones and this node included."""
        return 1 + len(self._members)

    def claims(self) -> tuple[Claim, ...]:
        """All claims, this node's first."""
        return (self.own, *(member.claim for member in self))

    def announce(self, about: SelfDescription) -> None:
        """This node's own metadata has changed."""
        if about != self.own.about:
            self._raise(self.own.incarnation + 1, about, self.own.state)

    def leave(self) -> None:
        """This node leaves."""
        self._raise(self.own.incarnation + 1, self.own.about, GossipState.LEFT)

    def receive(self, claim: Claim, now_s: float) -> MemberChange | None:
        """Apply a claim about a node; the change it causes."""
        if claim.node == self.own.node:
            self._receive_about_self(claim)
            return None
        known = self._members.get(claim.node)
        if known is None:
            return self._receive_about_unknown(claim, now_s)
        if claim.rank <= known.claim.rank:
            self._refresh(claim, known)
            return None
        return self._accept(claim, known, now_s)

    def suspect(self, node: NodeId, now_s: float) -> MemberChange | None:
        """A probe of another member failed."""
        member = self._members.get(node)
        if member is None or member.state.is_gone:
            return None
        claim = msgspec.structs.replace(
            member.claim, state=GossipState.SUSPECT, origin=self.own.node
        )
        return self.receive(claim, now_s)

    def expire(self, now_s: float) -> list[MemberChange]:
        """Expire suspicions whose time is up, and forget members that left or died long ago."""
        changes = []
        for node, suspicion in list(self._suspicions.items()):
            if suspicion.deadline_s <= now_s:
                member = self._members[node]
                claim = msgspec.structs.replace(
                    member.claim, state=GossipState.DEAD, origin=self.own.node
                )
                changes.append(self._accept(claim, member, now_s))
        for member in list(self):
            if member.state.is_gone and member.since_s + self._settings.forget_s <= now_s:
                del self._members[member.node]
        return changes

    def next_expiry_s(self) -> float:
        """When the next suspicion expires."""
        return min((each.deadline_s for each in self._suspicions.values()), default=float("inf"))

    def _receive_about_self(self, claim: Claim) -> None:
        """Refute a wrong claim; of a claim about an earlier process only the incarnation counts."""
        if self.own.state is GossipState.LEFT or claim.rank <= self.own.rank:
            return
        if claim.state is not GossipState.ALIVE:
            self.contradictions += 1
        self._raise(claim.incarnation + 1, self.own.about, GossipState.ALIVE)

    def _raise(self, incarnation: int, about: SelfDescription, state: GossipState) -> None:
        self.own = msgspec.structs.replace(
            self.own, incarnation=incarnation, about=about, state=state
        )
        self._broadcasts.put(self.own)

    def _receive_about_unknown(self, claim: Claim, now_s: float) -> MemberChange | None:
        if claim.state.is_gone or len(self._members) >= self._settings.members_max:
            return None
        member = Member(claim, now_s)
        self._members[claim.node] = member
        return self._accepted(None, member, now_s)

    def _refresh(self, claim: Claim, known: Member) -> None:
        """The same suspicion from another node shortens the time-out, and is gossiped."""
        suspicion = self._suspicions.get(claim.node)
        is_same = claim.rank == known.claim.rank and claim.state is GossipState.SUSPECT
        if suspicion is not None and is_same and suspicion.confirm(claim.origin):
            self._broadcasts.put(claim)

    def _accept(self, claim: Claim, member: Member, now_s: float) -> MemberChange:
        before = member.claim
        if claim.state is not GossipState.ALIVE:
            # Only the node itself has its current metadata.
            claim = msgspec.structs.replace(claim, about=before.about)
        if claim.state is not before.state:
            member.since_s = now_s
        member.claim = claim
        return self._accepted(before, member, now_s)

    def _accepted(self, before: Claim | None, member: Member, now_s: float) -> MemberChange:
        claim = member.claim
        self._broadcasts.put(claim)
        if claim.state is GossipState.SUSPECT:
            # A suspicion of a newer incarnation starts over.
            self._suspicions[claim.node] = Suspicion(claim.origin, self.size, self._settings, now_s)
        else:
            self._suspicions.pop(claim.node, None)
        return MemberChange(before, claim)
