"""How a node becomes part of a cluster, and tells the others where it is after every start.

    newcomer                     any node                      the leader of the catalogue
    JoinRequest(node) ──────▶ notes the address
                       ◀──────── JoinReply(cluster, addresses, leader)
    Admit              ──────────────────────────────────────▶ adds a learner to the group

A node that joins without anything on its disk while its number is taken is refused: either two
nodes have one number, or a disk was lost, and then what it once promised is forgotten too.
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


class JoinRequest(msgspec.Struct, frozen=True, array_like=True, tag="Knock"):
    """A node says where it is; ``is_new``: it has no memory of this cluster."""

    node: NodeId
    host: str
    port: int
    is_new: bool


class Admit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A node asks to be given the catalogue."""

    node: NodeId


class JoinReply(msgspec.Struct, frozen=True, array_like=True):
    """The cluster's name, where its nodes are, and who leads, if that is known."""

    cluster: str
    addresses: dict[NodeId, Address]
    leader: NodeId


_asked = msgspec.msgpack.Decoder(JoinRequest | Admit)
_welcomes = msgspec.msgpack.Decoder(JoinReply)
encode = msgspec.msgpack.Encoder().encode


def decode_join_reply(data: bytes | memoryview) -> JoinReply:
    """What a node that was knocked at answers."""
    try:
        return _welcomes.decode(data)
    except DECODE_ERRORS as error:
        raise Corrupt(f"not a welcome: {error}") from error


class JoinService:
    """Answers nodes that want to join.

    Args:
        cluster: the name of this node's cluster.
        addresses: where nodes are.
        catalogue: who is registered.
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
        """One request of a node that wants to join."""
        try:
            asked = _asked.decode(body)
        except DECODE_ERRORS as error:
            raise Corrupt(f"not a knock: {error}") from error
        if asked.node != node:
            raise Corrupt(f"node {node} speaks for node {asked.node}")
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
        return (encode(JoinReply(self._cluster, self._addresses.all(), self._driver.state.lead)),)

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
    """A node on its way in, and after every start.

    Args:
        request_join: what it says of itself.
        peers: how others are asked.
        addresses: where they are.
        join: where some of them are, as the operator says.
    """

    def __init__(
        self, request: JoinRequest, peers: Peers, addresses: AddressBook, join: Sequence[Address]
    ) -> None:
        self._request = request
        self._peers = peers
        self._addresses = addresses
        self._join = tuple(join)

    def settled(self) -> None:
        """This node has a memory of the cluster from now on."""
        self._request = msgspec.structs.replace(self._request, is_new=False)

    def addresses(self) -> list[Address]:
        """Where others are, or may be."""
        own = (self._request.host, self._request.port)
        booked = [a for node, a in self._addresses.all().items() if node != self._request.node]
        return [address for address in dict.fromkeys((*self._join, *booked)) if address != own]

    async def request_join(self, address: Address) -> str:
        """Introduce this node at an address; the cluster's name, nothing if nobody answers.

        Raises:
            Corrupt: who answers there is of another cluster, or has another secret.
            InvalidRequest: this node is not let in.
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
        """Tell every node that is known where this one is, each until it has heard it."""
        introduced: set[Address] = set()
        while True:
            for address in self.addresses():
                if address in introduced:
                    continue
                try:
                    if await self.request_join(address):
                        introduced.add(address)
                except MainstemError as error:
                    _log.warning("%s:%d does not know this node: %s", *address, error)
                    introduced.add(address)
            await asyncio.sleep(INTRODUCTION_PAUSE_S)

    async def request_admission(self) -> None:
        """Ask everybody to be given the catalogue; the leader heeds it."""
        question = [encode(Admit(self._request.node))]
        for address in self.addresses():
            try:
                await self._peers.ask_at(
                    address, PeerService.JOINING, question, timeout_s=JOIN_REPLY_TIMEOUT_S
                )
            except Unavailable:
                continue  # not the leader, or busy with another newcomer
            return
