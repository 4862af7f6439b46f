"""Cluster membership of this node: its Raft member and its connections to the other nodes.

    open: folder ─ connections ─ (join, be admitted) ─ group ─ replay ─ registered

The first node of a cluster creates the group alone, from the catalogue in its folder if it has one;
every other is admitted by existing members. The leader manages who votes.
"""

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from mainstem.cluster.peers.frames import PeerService
from mainstem.cluster.peers.handshake import NO_CLUSTER
from mainstem.cluster.peers.service import Peers, PeerSettings
from mainstem.cluster.raft.core import Raft
from mainstem.cluster.raft.drivers.interfaces_driver import DriverHooks
from mainstem.cluster.raft.drivers.node_driver import RaftDriver
from mainstem.cluster.raft.messages import NO_NODE, SoftState, initial_state
from mainstem.cluster.raft.persistence.raft_storage import RaftStorage
from mainstem.cluster.raft.state import RaftSettings
from mainstem.cluster.raft.status import RaftStatus
from mainstem.model.clock import Clock
from mainstem.model.errors import Fenced, Unavailable
from mainstem.model.features import OWN_LEVELS
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.node.clustering.address_book import NAME as BOOK_NAME
from mainstem.node.clustering.address_book import Address, AddressBook
from mainstem.node.clustering.bootstrap import archive_journal, bootstrap_group, bootstrap_state
from mainstem.node.clustering.joining import (
    JOIN_RETRY_PAUSE_S,
    Joiner,
    JoinService,
    NodeJoinRequest,
    peer_address,
)
from mainstem.node.clustering.levels_driver import LevelsDriver
from mainstem.node.clustering.peer_trust_driver import PeerTrustDriver, peer_tls
from mainstem.node.clustering.shared_secret import cluster_secrets
from mainstem.node.clustering.voters_driver import VotersDriver
from mainstem.node.config.cluster import PEER_PORT
from mainstem.node.config.settings import Config
from mainstem.placement.changes.commands import (
    AnyFact,
    FeaturesSet,
    FormCluster,
    NodeRegistered,
    NodeUnregistered,
    RegisterNode,
)
from mainstem.placement.persistence.export_storage import NAME as EXPORT_NAME
from mainstem.placement.persistence.export_storage import MetadataExport, read_export
from mainstem.placement.persistence.identity_storage import NAME as IDENTITY_NAME
from mainstem.placement.persistence.identity_storage import open_identity
from mainstem.placement.persistence.version_level_driver import VersionLevelDriver
from mainstem.placement.raft_service import RaftPlacementService
from mainstem.placement.startup_service import Placement, StartupOptions, identity_of, restore_lost
from mainstem.placement.state.catalogue import Catalogue

FOLDER: Final = "raft"
READY_TIMEOUT_S: Final = 2.0
HAND_OVER_S: Final = 1.0
WAIT_MAX_S: Final = 10.0
ELECTION_S: Final = {"normal": (1.0, 0.15), "fast": (0.3, 0.06)}

_log = logging.getLogger(__name__)

Fatal = Callable[[BaseException], None]


def is_clustered(config: Config) -> bool:
    """Whether a node is, or is to become, a member of a cluster that others can join."""
    asked = config.cluster.peer_port is not None or bool(config.cluster.join)
    return asked or (Path(config.node.data_dir) / FOLDER).exists()


class ClusterNode:
    """Opens and closes this node's part in the cluster: peers, Raft member, gossip.

    ``open`` creates the placement service, which must be closed before ``close``.
    """

    def __init__(self, start: StartupOptions, config: Config, clock: Clock, fatal: Fatal) -> None:
        self._start = start
        self._config = config
        self._clock = clock
        self._fatal = fatal
        self._data = start.data
        self.addresses = AddressBook(start.data / BOOK_NAME)
        self._is_new = not any((start.data / FOLDER).glob("*.wal"))
        # A folder that knows other nodes but lost its group's files must not create a new group.
        self._is_bootstrap = self._is_new and not config.cluster.join and not self.addresses.all()
        file = config.cluster.secret_file
        secrets = cluster_secrets(start.data, file, may_make=self._is_bootstrap)
        tls = peer_tls(config)
        self.peers = Peers(
            PeerSettings(
                cluster=NO_CLUSTER,
                node=start.node.id,
                broker_epoch=clock.wall_ms(),
                secrets=secrets,
                tls_listen=None if tls is None else tls.listening,
                tls_dial=None if tls is None else tls.dialling,
                allows_cleartext=config.node.insecure,
            ),
            self.addresses.address_of,
            os.urandom,
        )
        self._trust = PeerTrustDriver(
            lambda: cluster_secrets(start.data, file, may_make=False), secrets, tls
        )
        self._trust.on_secrets.append(self.peers.know)
        self.service = RaftPlacementService(
            Catalogue(), clock, fatal, ask=self._ask_leader, on_restored=self._restored
        )
        self.driver: RaftDriver
        self.address: Address = ("", 0)
        self._arrival: Joiner
        # The cipher library takes 7 MB, which a single node does not need.
        from mainstem.node.clustering.gossip import NodeGossip  # noqa: PLC0415

        self.gossip = NodeGossip(self.peers, self.addresses, clock)
        self.service.catalogue.busy = self.gossip.busy
        self.on_role: list[Callable[[SoftState], None]] = []
        self.on_restored: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def node(self) -> NodeId:
        """Which node this is."""
        return self._start.node.id

    @property
    def leads(self) -> bool:
        """Whether this node leads the catalogue's group."""
        return self.driver.state.is_leader

    @property
    def leader(self) -> NodeId | None:
        """The leader of the catalogue's group, if known."""
        lead = self.driver.state.lead
        return None if lead == NO_NODE else lead

    def status(self) -> RaftStatus:
        """The state of the catalogue's group, as this node sees it."""
        return self.driver.status

    # From a folder to a member.

    async def open(self) -> Placement:
        """Become a member, and register under a new incarnation."""
        config = self._config
        port = PEER_PORT if config.cluster.peer_port is None else config.cluster.peer_port
        found = await self.peers.listen(config.cluster.peer_host, port)
        self.address = (config.cluster.advertised_host or config.cluster.peer_host, found[1])
        self._arrival = Joiner(
            NodeJoinRequest(self._start.node.id, *self.address, self._is_new),
            self.peers,
            self.addresses,
            [peer_address(text, PEER_PORT) for text in config.cluster.join],
        )
        node = replace(
            self._start.node,
            peer_host=self.address[0],
            peer_port=self.address[1],
            machine=config.cluster.machine or machine_id(),
        )
        cluster = await self._cluster_name()
        self.peers.belong_to(cluster)
        await self._gossip_as(node, cluster)
        self._open_group()
        self._arrival.settled()
        self._serve(cluster)
        for work in (self._arrival.introduce(), self._trust.run(self._config)):
            self._run(work)
        await self._caught_up()
        identity = open_identity(
            self._data, node_id=node.id, cluster_id=cluster, now_ms=self._clock.wall_ms()
        )
        if not self.service.catalogue.cluster_id:
            exported = read_export(self._data / EXPORT_NAME)
            await restore_lost(self.service, self._start, exported, self._clock.wall_ms())
            await self.service.submit(FormCluster(cluster))
        archive_journal(self._data)
        incarnation = await self._register(node)
        self.service.subscribe(self._on_fact)
        self.peers.require(self.service.catalogue.level)
        for known in self.service.catalogue.nodes():
            if known.node.id != node.id:
                self.addresses.put_node(known.node)
        level = VersionLevelDriver(self.service, self._data, identity)
        self.on_restored.append(level.note)
        export = MetadataExport(self._data / EXPORT_NAME, self.service.catalogue, self._clock)
        self.service.subscribe(export.on_fact)
        voters = VotersDriver(self.driver, self.service.catalogue, self._clock)
        self.service.subscribe(voters.on_fact)
        self._run(voters.run())
        levels = LevelsDriver(self.service, node.id, incarnation)
        self.on_role.append(levels.on_role)
        self._run(levels.run())
        return Placement(self.service, export, level.identity, incarnation)

    async def close(self) -> None:
        """Close the Raft member and the connections to other nodes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.gossip.close()
        await self.driver.close()
        await self.peers.close()

    async def hand_over(self) -> None:
        """Transfer leadership to another voter, if this node leads and there is one."""
        others = [
            member.node_id
            for member in self.driver.status.members
            if not member.is_learner
            and member.recently_active
            and member.node_id != self._start.node.id
        ]
        if self.leads and others:
            handed_over = asyncio.Event()
            self.on_role.append(lambda _: handed_over.set())
            self.driver.transfer_leadership(others[0])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HAND_OVER_S):
                    await handed_over.wait()

    # Internals.

    def _run(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def _gossip_as(self, node: Node, cluster: str) -> None:
        """Refresh the addresses of other nodes before the group is used: they may have changed."""
        if self._config.cluster.preset == "fast":
            self.gossip.probe_soon()
        host = self._config.cluster.peer_host
        await self.gossip.start(cluster, self._trust.secrets, node, self._start.directory, host)
        self._trust.on_secrets.append(self.gossip.know)
        for work in self.gossip.works(self._arrival.addresses):
            self._run(work)

    async def _cluster_name(self) -> str:
        """The name of the cluster: from this folder, or from the nodes to join."""
        if self._is_bootstrap:
            catalogue = bootstrap_state(self._data)
            exported = read_export(self._data / EXPORT_NAME)
            bootstrap_group(self._data / FOLDER, self._start.node.id, catalogue)
            now_ms = self._clock.wall_ms()
            return identity_of(self._start, catalogue, exported, now_ms).cluster_id
        if not self._is_new and (self._data / IDENTITY_NAME).exists():
            return open_identity(
                self._data,
                node_id=self._start.node.id,
                cluster_id=self._start.cluster_id,
                now_ms=self._clock.wall_ms(),
            ).cluster_id
        cluster = ""
        logged_s = self._clock.monotonic()
        while not cluster:
            for address in self._arrival.addresses():
                cluster = cluster or await self._arrival.request_join(address)
            if not cluster:
                await asyncio.sleep(JOIN_RETRY_PAUSE_S)
                logged_s = self._log_waiting(logged_s, "no node of the cluster answers yet")
        return cluster

    def _open_group(self) -> None:
        own = self._start.node.id
        storage = RaftStorage(self._data / FOLDER)
        durable = storage.open(initial_state((own,)) if self._is_bootstrap else None)
        election_s, heartbeat_s = ELECTION_S[self._config.cluster.preset]
        core = Raft(
            RaftSettings(node_id=own, election_timeout_s=election_s, heartbeat_s=heartbeat_s),
            durable,
            chance=random.random,
            now_s=self._clock.monotonic(),
        )
        hooks = DriverHooks(on_fatal=self._fatal, on_role=self._role_changed)
        self.driver = RaftDriver(core, storage, self.service, _RaftSender(self), self._clock, hooks)
        self.service.attach(self.driver)
        self.peers.on_note(PeerService.RAFT, lambda _, body: self.driver.receive(body))
        self.driver.start(storage.state)
        self.peers.watcher.on_gone.append(lambda node: self.driver.unreachable(node, gone=True))

    def _serve(self, cluster: str) -> None:
        async def decide(_: NodeId, body: memoryview) -> Sequence[bytes]:
            return (await self.service.decide_for(body),)

        self.peers.serve(PeerService.CATALOGUE, decide)
        join_service = JoinService(cluster, self.addresses, self.service.catalogue, self.driver)
        self.peers.serve(PeerService.JOINING, join_service.answer)

    async def _caught_up(self) -> None:
        """Wait until this node has replayed all that was decided before, without a time limit."""
        logged_s = self._clock.monotonic()
        while True:
            try:
                members = self.driver.status.members
                if all(member.node_id != self._start.node.id for member in members):
                    await self._arrival.request_admission()
                await self.driver.read_barrier(READY_TIMEOUT_S)
            except Unavailable as error:
                _log.debug("not part of the catalogue's group yet: %s", error)
            else:
                return
            logged_s = self._log_waiting(logged_s, "the catalogue's group has no leader yet")
            await asyncio.sleep(JOIN_RETRY_PAUSE_S)

    async def _register(self, node: Node) -> int:
        while True:
            incarnation = self.service.catalogue.incarnation(node.id) + 1
            command = RegisterNode(node, incarnation, self._start.directory, OWN_LEVELS)
            try:
                await self.service.submit(command)
            except Fenced:
                continue  # registered before, which had not been replayed here
            except Unavailable as error:
                _log.warning("not registered yet: %s", error)
                await asyncio.sleep(JOIN_RETRY_PAUSE_S)
                await self._caught_up()
                if self.service.catalogue.incarnation(node.id) == incarnation:
                    return incarnation
                continue
            return incarnation

    def _log_waiting(self, logged_s: float, why: str) -> float:
        now_s = self._clock.monotonic()
        if now_s - logged_s < WAIT_MAX_S:
            return logged_s
        _log.warning("still waiting: %s", why)
        return now_s

    async def _ask_leader(self, node: NodeId, data: bytes, timeout_s: float) -> bytes | memoryview:
        return await self.peers.ask(node, PeerService.CATALOGUE, [data], timeout_s=timeout_s)

    def _role_changed(self, role: SoftState) -> None:
        for notify in self.on_role:
            notify(role)

    def _restored(self) -> None:
        self.peers.require(self.service.catalogue.level)
        for notify in self.on_restored:
            notify()

    def _on_fact(self, fact: AnyFact) -> None:
        match fact:
            case NodeRegistered(node=node):
                if node.id != self._start.node.id:
                    self.addresses.put_node(node)
            case NodeUnregistered(node=gone):
                self.addresses.drop(gone)
            case FeaturesSet():
                # A release with level N uses peer protocol version N.
                self.peers.require(self.service.catalogue.level)
            case _:
                pass


class _RaftSender:
    """Sends Raft messages to other nodes, without answers."""

    def __init__(self, cluster: ClusterNode) -> None:
        self._cluster = cluster

    def send(self, to: NodeId, data: bytes) -> None:
        """A message that cannot be sent now is dropped and reported to Raft."""
        if not self._cluster.peers.note(to, PeerService.RAFT, (data,)):
            self._cluster.driver.unreachable(to)


def machine_id() -> str:
    """An identifier of this machine."""
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except OSError:
        return os.uname().nodename
