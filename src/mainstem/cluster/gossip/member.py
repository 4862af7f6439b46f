"""Claims: statements of nodes about the state of a node.

A *claim* names a node, its incarnation and a state. Of two claims the one with the higher
incarnation holds; at the same incarnation the worse state holds. Only the node itself raises its
incarnation, so only it can contradict a bad claim.
"""

from enum import IntEnum
from typing import NamedTuple

import msgspec

from mainstem.model.ids import NodeId


class GossipState(IntEnum):
    """From good to bad: at equal incarnation the greater one holds."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3

    @property
    def is_gone(self) -> bool:
        """Whether the node has left or is dead."""
        return self >= GossipState.DEAD


class Address(NamedTuple):
    """Where a node receives gossip, by datagram and by stream."""

    host: str
    port: int


class SelfDescription(msgspec.Struct, frozen=True, array_like=True):
    """What a node advertises about itself."""

    address: Address
    broker_epoch: int = 0
    rack: str = ""
    machine: str = ""
    directories: tuple[str, ...] = ()
    endpoints: tuple[tuple[str, str, int], ...] = ()  # listener, host, port
    load: tuple[tuple[str, float], ...] = ()  # figure, value
    placement_leader: NodeId | None = None


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """One node's state as claimed by some node."""

    node: NodeId
    incarnation: int
    state: GossipState
    origin: NodeId
    about: SelfDescription

    @property
    def rank(self) -> tuple[int, int]:
        """What decides between claims about one node."""
        return self.incarnation, self.state


class Member:
    """A member as this node knows it."""

    __slots__ = ("claim", "since_s")

    def __init__(self, claim: Claim, since_s: float) -> None:
        self.claim = claim
        self.since_s = since_s

    @property
    def node(self) -> NodeId:
        """Which node it is."""
        return self.claim.node

    @property
    def state(self) -> GossipState:
        """The last known state."""
        return self.claim.state

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self.claim.about.address


class MemberChange(NamedTuple):
    """A change of a member that other parts of the node react to."""

    before: Claim | None
    after: Claim
