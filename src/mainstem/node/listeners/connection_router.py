"""Forwards client connections of a cluster to the node that serves them.

Queues and MQTT sessions are served by the writer of an internal topic; clients may connect to any
node, which forwards the connection to that one.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Any, Final

from msgspec import Struct

from mainstem.cluster.peers.frames import PeerService
from mainstem.model.errors import MainstemError
from mainstem.model.ids import NO_NODE, NodeId
from mainstem.model.metadata import Node
from mainstem.node.clustering.membership import ClusterNode
from mainstem.node.config.listener_spec import is_loopback
from mainstem.protocols.connection_admission import ConnectionAdmission
from mainstem.protocols.relay_listener import Relays

ASK_TIMEOUT_S: Final = 2.0


class RoutedService(Struct, frozen=True):
    """What the writer of a topic's first stream serves, and whether this node does now."""

    topic: str
    is_here: Callable[[], bool]


class ConnectionRouter:
    """Forwards clients to the node that serves them.

    Args:
        cluster: this node's cluster membership.
        addresses: where this node listens, by protocol.
        admission: of descriptors for connections to other nodes.
    """

    def __init__(
        self,
        cluster: ClusterNode,
        addresses: Callable[[], dict[str, Any]],
        admission: ConnectionAdmission,
    ) -> None:
        self._cluster = cluster
        self._addresses = addresses
        self._admission = admission
        self._served: dict[str, RoutedService] = {}
        cluster.peers.serve(PeerService.QUEUES, self._answer)

    def relays(self, protocol: str, served: RoutedService, host: str) -> Relays:
        """The forwarding of a listener on ``host``.

        Connections from other machines are not forwarded to a listener that trusts loopback.
        """
        self._served[protocol] = served
        relays = Relays(
            lambda: self._owner(served) is not None,
            partial(self._locate, protocol, served, is_here=is_loopback(host)),
        )
        relays.admission = self._admission
        return relays

    def _owner(self, served: RoutedService) -> NodeId | None:
        """The other node that serves, if one does."""
        topic = self._cluster.service.catalogue.topic(served.topic)
        if topic is None or served.is_here():
            return None
        owner = topic.streams[0].writer
        return None if owner in (NO_NODE, self._cluster.node) else owner

    async def _locate(
        self, protocol: str, served: RoutedService, *, is_here: bool
    ) -> tuple[str, int] | None:
        """Where the node that serves listens; None if that is unknown now."""
        owner = self._owner(served)
        if owner is None:
            return None
        try:
            answer = await self._cluster.peers.ask(
                owner, PeerService.QUEUES, [protocol.encode()], timeout_s=ASK_TIMEOUT_S
            )
        except MainstemError:
            return None
        host, _, port = bytes(answer).decode().rpartition(":")
        if not port:
            return None
        host = host.strip("[]")
        if _is_everywhere(host):
            host = next(node.host for node in self._nodes() if node.id == owner)
        return None if is_loopback(host) and not is_here else (host, int(port))

    def _nodes(self) -> Iterator[Node]:
        return (known.node for known in self._cluster.service.catalogue.nodes())

    async def _answer(self, _: NodeId, body: memoryview) -> Sequence[bytes]:
        """Where this node listens for a protocol, if it is the node that serves it."""
        protocol = bytes(body).decode(errors="replace")
        served = self._served.get(protocol)
        if served is None or not served.is_here():
            return [b""]
        return [str(self._addresses().get(protocol, "")).encode()]


def _is_everywhere(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
