"""How a node joins a cluster, and announces its address to the other nodes after every start.

    joining node                 any node                      the leader of the catalogue
    NodeJoinRequest(node) ──▶ notes the address
                       ◀──────── NodeJoinReply(cluster, addresses, leader)
    Admit              ──────────────────────────────────────▶ adds a learner to the group

A node that joins with an empty disk while its node id is taken is refused: either two nodes have
the same id, or a disk was lost, and with it the node's Raft votes and epoch promises.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from mainstem.cluster.peers.frames import PeerService
from mainstem.cluster.peers.service import Peers
from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.drivers.node_driver import RaftDriver
from mainstem.cluster.raft.messages import ConfChange, ConfChangeType, StateType
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import NodeId
from mainstem.node.clustering.address_book import Address, AddressBook
from mainstem.placement.state.catalogue import Catalogue

JOIN_REPLY_TIMEOUT_S: Final = 3.0
JOIN_RETRY_PAUSE_S: Final = 0.2
INTRODUCTION_PAUSE_S: Final = 0.5

_log = logging.getLogger(__name__)


class NodeJoinRequest(msgspec.Struct, frozen=True, array_like=True, tag="Knock"):
    """A node announces its address; ``is_new``: its folder has no data of this cluster."""

    node: NodeId
    host: str
    port: int
    is_new: bool


class Admit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Request: admit this node to the catalogue's group."""

    node: NodeId


class NodeJoinReply(msgspec.Struct, frozen=True, array_like=True):
    """The cluster's name, the addresses of its nodes, and the leader, if known."""

    cluster: str
    addresses: dict[NodeId, Address]
    leader: NodeId


_asked = msgspec.msgpack.Decoder(NodeJoinRequest | Admit)
_welcomes = msgspec.msgpack.Decoder(NodeJoinReply)
encode = msgspec.msgpack.Encoder().encode


def decode_join_reply(data: bytes | memoryview) -> NodeJoinReply:
    """Decode the answer to a join request."""
    try:
        return _welcomes.decode(data)
    except DECODE_ERRORS as error:
        raise Corrupt(f"malformed join reply: {error}") from error


class JoinService:
    """Answers join requests of other nodes.

    Args:
        cluster: the name of this node's cluster.
        addresses: where nodes are.
        catalogue: the registered nodes.
        driver: this node's member of the group.
    """

    def __init__(
        self, cluster: str, addresses: AddressBook, catalogue: Catalogue, driver: RaftDriver
    ) -> None:
        self._cluster = cluster
        self._addresses = addresses
        self._catalogue = catalogue
        self._driver = driver

    async def answer(self, node: NodeId, body: memoryview) -> Sequence[bytes]:
        """Handle one request of a joining node."""
        try:
            asked = _asked.decode(body)
        except DECODE_ERRORS as error:
            raise Corrupt(f"malformed join request: {error}") from error
        if asked.node != node:
            raise Corrupt(f"node {node} sent a join request for node {asked.node}")
        if isinstance(asked, Admit):
            await self._admit(node)
            return ()
        if asked.is_new and self._is_known(node):
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                f"node {node} is part of the cluster already, and this one has an empty folder",
                subject=f"node {node}",
                remedy="give the new node another id; remove the old one with: "
                f"mainstem node remove {node}",
            )
        self._addresses.put(node, (asked.host, asked.port))
        return (
            encode(NodeJoinReply(self._cluster, self._addresses.all(), self._driver.state.lead)),
        )

    def _is_known(self, node: NodeId) -> bool:
        members = {member.node_id for member in self._driver.status.members}
        return node in members or bool(self._catalogue.incarnation(node))

    async def _admit(self, node: NodeId) -> None:
        status = self._driver.status
        if status.state is not StateType.StateLeader:
            raise NotLeader(status.lead)
        if all(member.node_id != node for member in status.members):
            change = ConfChange(ConfChangeType.ConfChangeAddLearnerNode, node)
            await self._driver.change_membership(change)


def peer_address(text: str, default_port: int) -> Address:
    """``host:port`` or ``host`` as an address.

    Raises:
        InvalidRequest: it is neither.
    """
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text.strip("[]"), default_port
    if not port.isdigit() or not 0 < int(port) < 65536 or not host:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"{text!r} is not host:port",
            subject="cluster.join",
            remedy="for example --join 10.0.0.1:9094",
        )
    return host.strip("[]"), int(port)


class Joiner:
    """Joins this node to the cluster, and announces it after every start.

    Args:
        request_join: this node's own join request.
        peers: sends requests to other nodes.
        addresses: where they are.
        join: addresses of some of them, from the configuration.
    """

    def __init__(
        self,
        request: NodeJoinRequest,
        peers: Peers,
        addresses: AddressBook,
        join: Sequence[Address],
    ) -> None:
        self._request = request
        self._peers = peers
        self._addresses = addresses
        self._join = tuple(join)

    def settled(self) -> None:
        """This node has data of the cluster from now on."""
        self._request = msgspec.structs.replace(self._request, is_new=False)

    def addresses(self) -> list[Address]:
        """Where others are, or may be."""
        own = (self._request.host, self._request.port)
        booked = [a for node, a in self._addresses.all().items() if node != self._request.node]
        return [address for address in dict.fromkeys((*self._join, *booked)) if address != own]

    async def request_join(self, address: Address) -> str:
        """Announce this node at an address; the cluster's name, empty without an answer.

        Raises:
            Corrupt: the node there belongs to another cluster, or has another secret.
            InvalidRequest: this node may not join.
        """
        try:
            answer = await self._peers.ask_at(
                address,
                PeerService.JOINING,
                [encode(self._request)],
                timeout_s=JOIN_REPLY_TIMEOUT_S,
            )
        except Unavailable as error:
            _log.debug("%s:%d: %s", *address, error)
            return ""
        welcome = decode_join_reply(answer)
        others = {n: a for n, a in welcome.addresses.items() if n != self._request.node}
        self._addresses.fill(others)
        return welcome.cluster

    async def introduce(self) -> None:
        """Announce this node's address to every known node, and repeat until each has answered."""
        introduced: set[Address] = set()
        while True:
            for address in self.addresses():
                if address in introduced:
                    continue
                try:
                    if await self.request_join(address):
                        introduced.add(address)
                except MainstemError as error:
                    _log.warning("%s:%d does not accept this node: %s", *address, error)
                    introduced.add(address)
            await asyncio.sleep(INTRODUCTION_PAUSE_S)

    async def request_admission(self) -> None:
        """Ask every known node for admission to the catalogue's group; only the leader admits."""
        question = [encode(Admit(self._request.node))]
        for address in self.addresses():
            try:
                await self._peers.ask_at(
                    address, PeerService.JOINING, question, timeout_s=JOIN_REPLY_TIMEOUT_S
                )
            except Unavailable:
                continue  # not the leader, or busy with another joining node
            return
