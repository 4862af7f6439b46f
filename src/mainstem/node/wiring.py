"""Builds every object of a node and passes in its dependencies; no logic of its own."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from msgspec.structs import asdict, replace

from mainstem.broker.services.client_metrics_service import ClientMetricsService
from mainstem.broker.services.cluster_service import ClusterAdmin
from mainstem.broker.services.node_broker import NodeBroker
from mainstem.broker.services.producer_ids_service import ProducerIdBlocks
from mainstem.broker.services.security.security_service import SecurityService
from mainstem.broker.services.share_service import ShareService
from mainstem.broker.services.topics_service import NodeDefaults, TopicsAdmin
from mainstem.coordination.groups.service import GroupCoordinator
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.coordination.share.settings import ShareSettings
from mainstem.coordination.transactions.service import TransactionCoordinator
from mainstem.coordination.transactions.settings import TransactionSettings
from mainstem.log.disk.group_commit import GroupCommit
from mainstem.log.disk.space_monitor import DiskSpaceMonitor
from mainstem.log.store import LogStore, StoreSettings
from mainstem.model.clock import Clock
from mainstem.model.config.topic import topic_settings
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import NodeId
from mainstem.model.limits import MIB
from mainstem.model.metadata import Node
from mainstem.model.topic_name import MQTT_SESSIONS_TOPIC, QUEUES_TOPIC, TRANSACTION_STATE_TOPIC
from mainstem.node.background_jobs import repeated, run_background_jobs
from mainstem.node.clock import SystemClock
from mainstem.node.clustering.membership import ClusterNode, is_clustered
from mainstem.node.clustering.tasks import ClusterTasks, forwarding_streams, internal_topic, markers
from mainstem.node.config.kafka_names import kafka_config_values
from mainstem.node.config.settings import Config
from mainstem.node.file_descriptors import divided, granted
from mainstem.node.groups import all_groups, share_service
from mainstem.node.listeners.amqp import amqp_listener
from mainstem.node.listeners.connection_router import ConnectionRouter, RoutedService
from mainstem.node.listeners.kafka import KafkaListeners
from mainstem.node.listeners.mqtt import MqttListeners, mqtt_topics
from mainstem.node.listeners.native import native_listener
from mainstem.node.listeners.rest import node_facts, rest_service
from mainstem.node.listeners.single_port import SinglePortListener
from mainstem.node.queues import QueueServices
from mainstem.node.range_discovery import discover_ranges
from mainstem.node.resource_health import resources_health
from mainstem.node.security import (
    build_security,
    prepare_logins,
    tls_contexts,
)
from mainstem.placement.changes.commands import AnyFact, PartitionsAdded, TopicCreated, TopicDeleted
from mainstem.placement.startup_service import Placement, StartupOptions, open_placement
from mainstem.protocols.connection_admission import ConnectionAdmission
from mainstem.protocols.frame_memory import FrameMemory
from mainstem.protocols.kafka.api_table import served_apis
from mainstem.protocols.kafka.session import KafkaService
from mainstem.protocols.rest.handler_context import NodeDescription
from mainstem.protocols.rest.service import RestService
from mainstem.protocols.shared_resources import Resources
from mainstem.security.audit_storage import AuditFile
from mainstem.streams.context import NodeContext
from mainstem.streams.service import StreamService
from mainstem.streams.writer.flusher import Flusher
from mainstem.streams.writer.roll_driver import RollDriver
from mainstem.telemetry.health import Component, Health, HealthState, summarize
from mainstem.telemetry.metrics import Metrics

Fatal = Callable[[BaseException], None]

SEALS_S = 2.0  # where all nodes stop together, no node is left to decide on seals
LONE_SEALS_S = 10.0  # on a full disk there may be no space for them
QUEUES_MEMORY_BYTES_MAX = 1024 * MIB
CLIENT_METRICS_FILE = "client-metrics.jsonl"
CLIENT_METRICS_FILE_BYTES_MAX = 16 * MIB
CLIENT_METRICS_FILES_KEPT = 4


@dataclass(kw_only=True)
class NodeServices:
    """A running node: its services, and how they stop."""

    config: Config
    placement: Placement
    store: LogStore
    commits: GroupCommit
    streams: StreamService
    rolls: RollDriver
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    broker: NodeBroker
    metrics: Metrics
    topics: TopicsAdmin
    clock: Clock
    security: SecurityService
    audit: AuditFile
    measured: AuditFile
    kafka: KafkaListeners
    amqp: SinglePortListener
    native: SinglePortListener
    queues: QueueServices
    shares: ShareService
    resources: Resources
    watch: DiskSpaceMonitor
    cluster: ClusterNode | None = None
    tasks: ClusterTasks | None = None
    connection_router: ConnectionRouter | None = None
    mqtt: MqttListeners | None = None
    http: RestService | None = None
    http_port: int = 0
    stopping: bool = False
    chores: list[asyncio.Task[None]] = field(default_factory=list)

    def addresses(self) -> dict[str, object]:
        """Where each protocol listens."""
        found = self.kafka.addresses() | self.amqp.addresses() | self.native.addresses()
        if self.mqtt is not None:
            found |= self.mqtt.addresses()
        if self.http is not None:
            found["http"] = f"{self.config.http.host}:{self.http_port}"
        if self.cluster is not None:
            found["peers"] = "{}:{}".format(*self.cluster.address)
            found["node"] = self.broker.node.id
        return found

    def health(self) -> Health:
        """The health of each part of the node."""
        loaded = HealthState.OK if self.groups.is_loaded() else HealthState.STARTING
        known = HealthState.OK if self.transactions.is_loaded() else HealthState.STARTING
        node = HealthState.STOPPING if self.stopping else HealthState.OK
        damaged = HealthState.DEGRADED if self.metrics.log_corruptions else HealthState.OK
        space = self.watch.space
        disk = Component("disk", HealthState.OK)
        if space.is_low:  # reads, deletes and commits go on: the node stays ready
            disk = Component("disk", HealthState.DEGRADED, str(space.refusal("the data folder")))
        return summarize(
            [
                Component("node", node),
                Component("log", damaged),
                *resources_health(self.resources),
                disk,
                Component("groups", loaded),
                Component("transactions", known),
            ]
        )

    async def listen(self, on_fatal: Fatal) -> None:
        """Open the listeners; the node serves from now on."""
        config = self.config
        service = KafkaService(
            self.broker,
            served_apis(),
            self.metrics,
            config.kafka.frame_bytes_max,
            self.resources.memory,
        )
        tls = tls_contexts(config)
        if tls is not None:
            self.repeat(partial(tls.watch, config.tls.reload_interval_ms / 1000), on_fatal)
        await self.kafka.start(service, self.security, self.clock, tls, self.resources)
        # Clients get the address they connected to, unless the operator configured another.
        host, port = config.kafka.advertised_host, config.kafka.advertised_port
        self.topics.node = replace(
            self.topics.node,
            host=host or self.kafka.host,
            port=port or self.kafka.port,
            advertised=host is not None or port is not None,
        )
        self.broker.node = self.topics.node
        self.topics.configs.listening(self.kafka.names())
        if config.mqtt.enabled:
            self.mqtt = MqttListeners(
                config,
                self.broker,
                self.clock,
                self.metrics,
                mqtt_topics(config, self.placement.service, self.topics),
            )
            _lead_to_mqtt(self, self.mqtt)
            self.streams.table.watch(self.mqtt.opened, self.mqtt.closed)
            await self.mqtt.start(tls, self.resources)
        if config.http.enabled:
            self.http = rest_service(
                config,
                self.broker,
                self.clock,
                self.metrics,
                health=self.health,
                facts=self._facts,
            )
            self.http.admission = self.resources.admission
            self.http.websocket = None if self.mqtt is None else self.mqtt.websocket()
            secure = tls.context if tls is not None and config.http.tls else None
            self.http_port = await self.http.start(config.http.host, config.http.port, secure)
        await self.amqp.start(self.clock, self.metrics, tls, self.resources)
        await self.native.start(self.clock, self.metrics, tls, self.resources)

    def repeat(self, chore: Callable[[], Coroutine[None, None, None]], on_fatal: Fatal) -> None:
        """Run a background job for as long as the node runs; one that fails ends the node.

        It restarts when this node's storage has refused a step.
        """
        task = asyncio.get_running_loop().create_task(repeated(chore))

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                on_fatal(error)

        task.add_done_callback(ended)
        self.chores.append(task)

    def _facts(self) -> NodeDescription:
        return node_facts(
            self.config,
            kafka_port=self.kafka.port,
            http_port=self.http_port,
            segment_bytes=topic_settings({}, self.config.kafka_names()).segment_bytes,
        )

    async def stop(self, grace_s: float) -> None:
        """Refuse new requests, finish those in flight, close the files cleanly."""
        self.stopping = True
        if self.tasks is not None:
            await self.tasks.hand_over_all()
        for chore in self.chores:
            chore.cancel()
        await asyncio.gather(*self.chores, return_exceptions=True)
        deadline = asyncio.get_running_loop().time() + grace_s
        if self.http is not None:
            self.http.refuse_new()
        await self.kafka.stop()
        if self.mqtt is not None:
            await self.mqtt.stop()
        await self.amqp.stop(grace_s)
        await self.native.stop(grace_s)
        await self.queues.driver.stop()
        await self.shares.stop()
        self.transactions.stop()
        self.groups.stop()
        await self.commits.drain()
        await self.kafka.drain(max(0.0, deadline - asyncio.get_running_loop().time()))
        if self.mqtt is not None:
            await self.mqtt.drain(max(0.0, deadline - asyncio.get_running_loop().time()))
        if self.http is not None:
            await self.http.stop(max(0.0, deadline - asyncio.get_running_loop().time()))
        await self.rolls.settled(LONE_SEALS_S if self.cluster is None else SEALS_S)
        await self.commits.drain()
        self.streams.lifecycle.save_producers()
        self.streams.lifecycle.close()
        self.commits.close()
        self.store.close()
        await self.placement.close()
        if self.cluster is not None:
            await self.cluster.close()
        self.security.logins.close()
        self.audit.close()
        self.measured.close()

    async def abandon(self) -> None:
        """Stop at once after a fatal error: nothing more is written or acknowledged."""
        os._exit(3)


def topic_notifier(groups: GroupCoordinator, topics: TopicsAdmin) -> Callable[[AnyFact], None]:
    """Passes changes of topics on to the groups."""

    def on_fact(fact: AnyFact) -> None:
        match fact:
            case TopicDeleted(name=name):
                groups.topic_deleted(name)
            case TopicCreated(name=name):
                groups.topic_changed(name)
            case PartitionsAdded(id=topic_id):
                grown = topics.by_id(topic_id)
                if grown is not None:
                    groups.topic_changed(grown.name)
            case _:
                pass

    return on_fact


async def build(config: Config, on_fatal: Fatal, *, rebuild: bool = False) -> NodeServices:
    """Open the data folder and everything above it; listeners last."""
    clock, data, node = SystemClock(), Path(config.node.data_dir), _node_of(config)
    descriptors = divided(granted(config), config)
    watch = DiskSpaceMonitor(data, config.log.disk_reserve_bytes)
    store = _opened_log(data, descriptors.files_open_max, clock, watch)
    kafka = KafkaListeners(config)
    start = StartupOptions(
        data=data,
        node=node,
        cluster_id=config.node.cluster_id,
        directory=store.directory_id.hex(),
        scan=lambda: discover_ranges(store),
        rebuild=rebuild,
    )
    placement, cluster = await _opened(start, config, kafka, clock, on_fatal)
    metrics = Metrics(placement.service.catalogue.ignored)
    topics = TopicsAdmin(placement.service, node, NodeDefaults(kafka_config_values(config)))
    commits = GroupCommit(
        asyncio.get_running_loop(),
        on_fatal,
        store.files.access,
        threads=config.log.storage_threads,
        on_round=metrics.synced,
    )
    rolls = RollDriver(placement.service, store, commits, on_fatal)
    flusher = Flusher(
        metrics, sync=commits.request, roll=rolls.roll, fatal=on_fatal, space=watch.space
    )
    streams = StreamService(
        NodeContext(placement.service, store, flusher, clock, topics.configs.settings_of, node.id),
        peers=None if cluster is None else cluster.peers,
    )
    tasks = None if cluster is None else ClusterTasks(cluster, placement.incarnation, streams)
    if tasks is not None:
        tasks.begin(clock, config.cluster.preset, on_fatal)
    await streams.lifecycle.start(placement.incarnation)
    groups = GroupCoordinator(
        GroupSettings(**asdict(config.groups)),
        internal_topic(topics, streams, OFFSETS_TOPIC),
        topics,
        clock,
        sharing=ShareSettings(**asdict(config.share)),
    )
    producers = ProducerIdBlocks(placement.service, node.id, placement.incarnation)
    marking = markers(cluster, streams, groups)
    transactions = TransactionCoordinator(
        TransactionSettings(**asdict(config.transactions)),
        internal_topic(topics, streams, TRANSACTION_STATE_TOPIC),
        clock,
        new_producer_id=producers.new_producer_id,
        markers=marking,
        group_offsets=groups.transactional_offsets,
    )
    security, audit = build_security(config, placement.service, clock)
    await prepare_logins(config, security)
    measured = AuditFile(
        data / CLIENT_METRICS_FILE,
        file_bytes_max=CLIENT_METRICS_FILE_BYTES_MAX,
        files_kept=CLIENT_METRICS_FILES_KEPT,
    )
    queues = QueueServices(
        placement.service, topics, streams, clock, memory_bytes_max=QUEUES_MEMORY_BYTES_MAX
    )
    any_streams = forwarding_streams(cluster, streams)
    shares = share_service(cluster, groups.share_groups, topics, any_streams, clock)
    broker = NodeBroker(
        node=node,
        streams=any_streams,
        topics=topics,
        groups=groups,
        all_groups=all_groups(cluster, groups, shares),
        transactions=transactions,
        producers=producers,
        security=security,
        cluster=_cluster_admin(placement, topics, clock, cluster, tasks),
        client_metrics=ClientMetricsService(placement.service, clock, metrics, measured.write),
        queues=queues.service,
        shares=shares,
    )

    placement.service.subscribe(topic_notifier(groups, topics))
    groups.start()
    transactions.start()
    if tasks is not None:
        tasks.connect(groups, transactions, marking)
    queues.driver.start()
    services = NodeServices(
        config=config,
        placement=placement,
        store=store,
        commits=commits,
        streams=streams,
        rolls=rolls,
        groups=groups,
        transactions=transactions,
        broker=broker,
        metrics=metrics,
        topics=topics,
        clock=clock,
        security=security,
        audit=audit,
        measured=measured,
        kafka=kafka,
        amqp=amqp_listener(config, broker),
        native=native_listener(config, broker),
        queues=queues,
        shares=shares,
        resources=Resources(
            ConnectionAdmission(descriptors.clients),
            FrameMemory(config.memory.large_frames_bytes_max, metrics),
            has_space=lambda: not watch.space.is_low,
        ),
        watch=watch,
        cluster=cluster,
        tasks=tasks,
    )
    services.connection_router = (
        None
        if cluster is None
        else ConnectionRouter(cluster, services.addresses, services.resources.admission)
    )
    _lead_to_queues(services)
    await services.listen(on_fatal)
    run_background_jobs(services, flusher, on_fatal)
    return services


def _node_of(config: Config) -> Node:
    kafka = config.kafka
    return Node(NodeId(config.node.id), kafka.host, kafka.port, rack=config.node.rack)


def _opened_log(data: Path, files_open_max: int, clock: Clock, watch: DiskSpaceMonitor) -> LogStore:
    settings = StoreSettings(files_open_max=files_open_max)
    return LogStore(data, settings, clock, space=watch.space)


async def _opened(
    start: StartupOptions, config: Config, kafka: KafkaListeners, clock: Clock, on_fatal: Fatal
) -> tuple[Placement, ClusterNode | None]:
    """The catalogue: of this node alone, or of a cluster."""
    if not is_clustered(config):
        return await open_placement(start, clock, on_fatal), None
    if start.rebuild:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            "the catalogue of a cluster cannot be rebuilt from one node's folders",
            subject="--rebuild-catalogue",
            remedy="start the node with an empty folder, so that it joins the others",
        )
    listeners = kafka.reserve()
    _, host, port = listeners[0]
    own = replace(start.node, host=host, port=port, listeners=listeners)
    started = replace(start, node=own)
    cluster = ClusterNode(started, config, clock, on_fatal)
    return await cluster.open(), cluster


def _cluster_admin(
    placement: Placement,
    topics: TopicsAdmin,
    clock: Clock,
    cluster: ClusterNode | None,
    tasks: ClusterTasks | None,
) -> ClusterAdmin:
    admin = ClusterAdmin(
        placement.service,
        lambda: topics.node,
        clock,
        group=None if cluster is None else cluster.status,
        ensure=topics.ensure_internal,
        missing=tuple if cluster is None else cluster.peers.watcher.missing,
    )
    if cluster is not None:
        admin.seen = cluster.gossip.seen
    if tasks is not None:
        admin.hand_over = tasks.moves.to_preferred
    return admin


def _lead_to_queues(services: NodeServices) -> None:
    """Clients of queues may connect to any node of a cluster."""
    if services.connection_router is not None:
        queues = RoutedService(QUEUES_TOPIC, lambda: services.queues.is_served)
        services.amqp.relays = services.connection_router.relays(
            "amqp", queues, services.config.amqp.host
        )
        services.native.relays = services.connection_router.relays(
            "native", queues, services.config.native.host
        )


def _lead_to_mqtt(services: NodeServices, mqtt: MqttListeners) -> None:
    """MQTT clients may connect to any node of a cluster."""
    if services.connection_router is not None:
        sessions = RoutedService(MQTT_SESSIONS_TOPIC, lambda: mqtt.hub.is_open)
        for name in ("mqtt", "mqtt_tls"):
            mqtt.relays[name] = services.connection_router.relays(
                name, sessions, services.config.mqtt.host
            )
        mqtt.relays["http"] = services.connection_router.relays(
            "http", sessions, services.config.http.host
        )
