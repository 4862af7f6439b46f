"""Leases: the placement leader's clock decides which nodes are live.

    node ──renew every 0.3 s──▶ leader            leader: not renewed for 1.5 s ──▶ fenced
    node: a lease ends 1.5 s after it was *requested*, so never later than at the leader

A new leader grants every node one lease before it declares any dead; to the leader before it a
shorter one, because an election has already waited for that one. A leader that was itself stopped
(paused, starved of processor time) extends all leases by that time. A lease is granted from the
moment at which most nodes last confirmed that the granting one leads, so that none outlives its
grantor by more than its length. Pure; times are milliseconds of a clock that never goes back.
"""

from collections.abc import Iterable

from msgspec import Struct

from mainstem.model.ids import NO_NODE, NodeId


class LeaseSettings(Struct, frozen=True):
    """``lease_ms`` is how long a lease lasts, ``renew_ms`` how often it is renewed.

    ``election_ms`` is the shortest silence of a leader after which another is elected.
    """

    lease_ms: int = 1_500
    renew_ms: int = 300
    election_ms: int = 1_000


NORMAL = LeaseSettings()
FAST = LeaseSettings(lease_ms=500, renew_ms=100, election_ms=300)
PRESETS = {"normal": NORMAL, "fast": FAST}


class LeaseTable:
    """The leases that a leader has granted."""

    __slots__ = ("_seen_ms", "_settings", "_until_ms")

    def __init__(self, settings: LeaseSettings) -> None:
        self._settings = settings
        self._until_ms: dict[NodeId, int] = {}
        self._seen_ms = 0

    def begin(self, nodes: Iterable[NodeId], now: int, former: NodeId = NO_NODE) -> None:
        """This node leads from now on, ``former`` did before: every node has one lease."""
        settings = self._settings
        self._until_ms = dict.fromkeys(nodes, now + settings.lease_ms)
        if former in self._until_ms:
            self._until_ms[former] -= min(settings.election_ms, settings.lease_ms)
        self._seen_ms = now

    def renew(self, node: NodeId, now: int) -> None:
        """A node renewed in time, or came back."""
        self._until_ms[node] = now + self._settings.lease_ms

    def forget(self, node: NodeId) -> None:
        """A node has no lease."""
        self._until_ms.pop(node, None)

    def late(self, nodes: Iterable[NodeId], now: int) -> list[NodeId]:
        """Those of ``nodes`` that missed a renewal: checked before the lease ends."""
        settings = self._settings
        least = settings.lease_ms - 2 * settings.renew_ms
        return [node for node in nodes if self._until_ms.get(node, now + least) < now + least]

    def lapsed(self, nodes: Iterable[NodeId], now: int) -> list[NodeId]:
        """Those of ``nodes`` whose lease has ended. To be called every ``renew_ms`` or more often.

        A node without a record has a first lease from now on.
        """
        away_ms = now - self._seen_ms - self._settings.renew_ms
        self._seen_ms = now
        if away_ms > self._settings.renew_ms:
            # Requests that arrived meanwhile are still unread in this node's sockets.
            self._until_ms = {node: until + away_ms for node, until in self._until_ms.items()}
        first = now + self._settings.lease_ms
        return [node for node in nodes if self._until_ms.setdefault(node, first) <= now]


class OwnLease:
    """A node's own lease, as it may rely on it."""

    __slots__ = ("_until_ms",)

    def __init__(self) -> None:
        self._until_ms = -1

    def granted(self, asked_ms: int, lease_ms: int) -> None:
        """The lease requested at ``asked_ms`` was granted."""
        self._until_ms = max(self._until_ms, asked_ms + lease_ms)

    def end(self) -> None:
        """The leader answered that this node has no lease."""
        self._until_ms = -1

    def holds(self, now: int) -> bool:
        """Whether the leader cannot have declared this node dead yet."""
        return now < self._until_ms
