"""The whole configuration of a node as one frozen tree.

    defaults < preset < file (TOML or YAML) < MAINSTEM_* environment < flags

``loader`` reads the layers; this module defines which settings exist, their defaults and when to
change them. Each package is passed the values it needs; none reads this tree, the environment or
a file by itself.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from mainstem.model import limits
from mainstem.model.config.topic import TOPIC_KEYS
from mainstem.node.config.amqp import AmqpSection
from mainstem.node.config.cluster import ClusterSection
from mainstem.node.config.mqtt import MqttSection
from mainstem.node.config.native import NativeSection
from mainstem.node.config.security import SecuritySection, TlsSection
from mainstem.node.config.share_groups import ShareSection

KIB, MIB = limits.KIB, limits.MIB
SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


class NodeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Identity of the node and the location of its files."""

    id: Annotated[
        int,
        Meta(
            ge=0,
            le=2**31 - 1,
            description="Id of this node in its cluster. It must not change later.",
        ),
    ] = 1
    data_dir: Annotated[
        str,
        Meta(
            min_length=1,
            description="Folder of all data. Put it on a durable disk.",
        ),
    ] = "data"
    cluster_id: Annotated[
        str | None,
        Meta(
            description="Name of the cluster, as shown to clients. Set it before the first start "
            "to "
            "choose it yourself; otherwise one is drawn and kept."
        ),
    ] = None
    rack: Annotated[
        str | None,
        Meta(
            description="Rack or zone of the machine. Set it where clients read from replicas in "
            "their own rack."
        ),
    ] = None
    insecure: Annotated[
        bool,
        Meta(
            description="Allow listeners that other machines can reach without a login. "
            "Only for networks you trust entirely."
        ),
    ] = False


class KafkaSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Kafka listener."""

    host: Annotated[
        str,
        Meta(min_length=1, description="Address to listen on. Other than loopback needs insecure."),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port; 0 picks a free one.")] = 9092
    listeners: Annotated[
        tuple[str, ...],
        Meta(
            description="Listeners as KIND://host:port instead of host and port; kinds are "
            "PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL. Set it so that clients log in."
        ),
    ] = ()
    advertised_listeners: Annotated[
        tuple[str, ...],
        Meta(
            description="Addresses that clients of each listener are given to connect to, in the "
            "same order. Unset: the address that the client connected to."
        ),
    ] = ()
    advertised_host: Annotated[
        str | None,
        Meta(
            description="Host that clients are given to connect to. Set it behind address "
            "translation; "
            "otherwise each client gets the address that it connected to."
        ),
    ] = None
    advertised_port: Annotated[
        Annotated[int, Meta(ge=1, le=65535)] | None,
        Meta(
            description="Port that clients are given to connect to, if it differs from the real "
            "one."
        ),
    ] = None
    max_connections: Annotated[
        int,
        Meta(ge=1, description="Connections served at once; more are closed. Bound by open files."),
    ] = limits.CONNECTIONS_MAX
    frame_bytes_max: Annotated[
        int,
        Meta(
            ge=KIB,
            le=2**31 - 1,
            description="Largest request. Raise it together with max.message.bytes.",
        ),
    ] = limits.FRAME_BYTES_MAX
    connection_idle_ms: Annotated[
        int,
        Meta(
            ge=SECOND_MS,
            description="How long a connection may be idle before it is closed. Lower it where "
            "many clients disappear without closing their connections.",
        ),
    ] = 10 * MINUTE_MS


class HttpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP listener: REST, health, metrics."""

    enabled: Annotated[bool, Meta(description="Serve HTTP. Switch it off if it is not used.")] = (
        True
    )
    host: Annotated[
        str,
        Meta(min_length=1, description="Address to listen on. Other than loopback needs insecure."),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port; 0 picks a free one.")] = 8080
    shared_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="Further port that nodes of one machine may have in common: the system "
            "spreads connections over them. 0: none. `--shards` sets it.",
        ),
    ] = 0
    tls: Annotated[bool, Meta(description="Use HTTPS, with the files of the tls section.")] = False
    login: Annotated[
        bool,
        Meta(
            description="Require a name and password, a bearer token, an API token or a client's "
            "certificate. Health needs no login. Off loopback it needs tls."
        ),
    ] = False
    body_bytes_max: Annotated[
        int, Meta(ge=KIB, description="Largest request body; more is answered with 413.")
    ] = limits.HTTP_BODY_BYTES_MAX


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Work on the files of all topics. How one topic is kept is a topic setting: see ``topics``."""

    storage_threads: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="Disk flushes that may run concurrently. Raise it on fast disks.",
        ),
    ] = 4
    retention_check_interval_ms: Annotated[
        int, Meta(ge=10, description="How often expired records are searched for.")
    ] = 5 * MINUTE_MS
    cleaner_enabled: Annotated[
        bool, Meta(description="Run compaction. Switch it off only to investigate a problem.")
    ] = True
    cleaner_interval_ms: Annotated[
        int, Meta(ge=10, description="How often compaction looks for work.")
    ] = 15 * SECOND_MS
    cleaner_keys_bytes_max: Annotated[
        int,
        Meta(
            ge=64 * KIB,
            description="Memory for the keys of one compaction. Raise it for compacted topics with "
            "very many keys.",
        ),
    ] = 128 * MIB
    scrub_interval_ms: Annotated[
        int,
        Meta(
            ge=0, description="How often all closed files are verified in the background; 0: never."
        ),
    ] = 7 * DAY_MS
    disk_reserve_bytes: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="Free space below which records are refused, so that the node can go on, "
            "free space and start again. By default 2 % of the file system, between 16 MiB (or a "
            "tenth of a smaller one) and 1 GiB; 0 keeps none."
        ),
    ] = None


class TopicsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Creation of topics, and what a topic gets for each setting that it does not set itself.

    ``defaults`` holds only what was configured, under Kafka's names. In a file it stands beside the
    others: ``topics.retention_ms`` is the default of ``retention.ms``.
    """

    auto_create: Annotated[
        bool,
        Meta(
            description="Create a topic when a client first requests it. Switch it off where a "
            "misspelt name should be an error."
        ),
    ] = True
    default_partitions: Annotated[
        int,
        Meta(
            ge=1,
            le=limits.PARTITIONS_PER_TOPIC_MAX,
            description="Partitions of a topic created without a number. Raise it when groups "
            "should share the work by default.",
        ),
    ] = 1
    default_replicas: Annotated[
        int,
        Meta(
            ge=1,
            le=9,
            description="Copies of a topic created without a number; as many as there are nodes, "
            "if those are fewer. Lower it for records that need not outlive a node.",
        ),
    ] = 3
    defaults: dict[str, str] = {}


class GroupsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Consumer groups; the fields are those of ``coordination.settings``."""

    initial_rebalance_delay_ms: Annotated[
        int,
        Meta(
            ge=0,
            description="How long an empty group waits for more members before it starts. 0 "
            "starts at once, at the price of more rebalances when many start together.",
        ),
    ] = 3 * SECOND_MS
    session_timeout_min_ms: Annotated[
        int, Meta(ge=1, description="Smallest session time-out that a member may request.")
    ] = 6 * SECOND_MS
    session_timeout_max_ms: Annotated[
        int, Meta(ge=1, description="Largest session time-out that a member may request.")
    ] = 30 * MINUTE_MS
    new_member_timeout_ms: Annotated[
        int,
        Meta(ge=1, description="How long the first join of a member may wait for its response."),
    ] = 5 * MINUTE_MS
    members_max: Annotated[
        int, Meta(ge=1, description="Members of one group; more are refused.")
    ] = limits.GROUP_MEMBERS_MAX
    offset_metadata_bytes_max: Annotated[
        int,
        Meta(
            ge=0,
            description="Largest metadata text stored with an offset. Raise it for clients that "
            "store much there.",
        ),
    ] = limits.OFFSET_METADATA_BYTES_MAX
    offsets_retention_ms: Annotated[
        int, Meta(ge=1, description="How long the offsets of an empty group are kept.")
    ] = 7 * DAY_MS
    offsets_retention_check_ms: Annotated[
        int, Meta(ge=10, description="How often expired offsets are searched for.")
    ] = 10 * MINUTE_MS
    offsets_partitions: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description="Partitions of __consumer_offsets. Fixed at the first start.",
        ),
    ] = 50
    consumer_session_timeout_ms: Annotated[
        int,
        Meta(
            ge=1,
            description="Time without a heartbeat after which a member counts as dead, in groups "
            "whose members are assigned by the coordinator (`group.protocol=consumer`).",
        ),
    ] = 45 * SECOND_MS
    consumer_heartbeat_interval_ms: Annotated[
        int,
        Meta(
            ge=1,
            description="How often such members send heartbeats. Lower it to reassign partitions "
            "sooner; raise it for very large groups.",
        ),
    ] = 5 * SECOND_MS
    consumer_session_timeout_min_ms: Annotated[
        int, Meta(ge=1, description="Smallest session time-out that such a group may set.")
    ] = 45 * SECOND_MS
    consumer_session_timeout_max_ms: Annotated[
        int, Meta(ge=1, description="Largest session time-out that such a group may set.")
    ] = 60 * SECOND_MS
    consumer_heartbeat_interval_min_ms: Annotated[
        int, Meta(ge=1, description="Smallest heartbeat interval that such a group may set.")
    ] = 5 * SECOND_MS
    consumer_heartbeat_interval_max_ms: Annotated[
        int, Meta(ge=1, description="Largest heartbeat interval that such a group may set.")
    ] = 15 * SECOND_MS
    consumer_members_max: Annotated[
        int, Meta(ge=1, description="Members of one such group; more are refused.")
    ] = limits.GROUP_MEMBERS_MAX
    consumer_migration_policy: Annotated[
        Literal["bidirectional", "upgrade", "downgrade", "disabled"],
        Meta(
            description="Which ways a group with members may change its protocol: to the "
            "coordinator's assignment (upgrade), back (downgrade), both or neither.",
        ),
    ] = "bidirectional"


class TransactionsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Transactions; the fields are those of ``coordination.transactions.settings``."""

    timeout_max_ms: Annotated[
        int,
        Meta(
            ge=1,
            description="Longest time-out that a producer may request. An open transaction holds "
            "back every reader of committed records.",
        ),
    ] = 15 * MINUTE_MS
    two_phase_enabled: Annotated[
        bool,
        Meta(
            description="Whether producers may take part in two-phase commit with an external "
            "coordinator. Such "
            "transactions are never aborted by time."
        ),
    ] = True
    id_expiration_ms: Annotated[
        int, Meta(ge=1, description="How long an unused transactional id is kept.")
    ] = 7 * DAY_MS
    expiration_check_ms: Annotated[
        int, Meta(ge=10, description="How often unused transactional ids are searched for.")
    ] = 60 * MINUTE_MS
    timeout_check_ms: Annotated[
        int, Meta(ge=10, description="How late a time-out may be noticed.")
    ] = SECOND_MS
    patience_ms: Annotated[
        int,
        Meta(
            ge=0,
            description="How long a request waits for the previous transaction to complete before "
            "the client is asked to retry.",
        ),
    ] = SECOND_MS
    state_partitions: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description="Partitions of __transaction_state. Fixed once there was a transaction.",
        ),
    ] = 50


class MemorySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on memory shared by all connections."""

    large_frames_bytes_max: Annotated[
        int,
        Meta(
            ge=MIB,
            description="Memory for received requests that cannot be served yet; a "
            "connection that would need more is closed.",
        ),
    ] = limits.LARGE_FRAMES_BYTES_MAX


class LogLineSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The node's own log lines."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Lowest level that is logged. Use debug to investigate a problem."),
    ] = "info"
    format: Annotated[
        Literal["auto", "text", "json"],
        Meta(description="auto writes text to a terminal and JSON lines otherwise."),
    ] = "auto"


class ShutdownSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Graceful shutdown."""

    grace_ms: Annotated[
        int,
        Meta(
            ge=0, description="How long requests in flight may take to finish after a stop signal."
        ),
    ] = 30 * SECOND_MS


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting of a node."""

    node: NodeSettings = field(default_factory=NodeSettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    amqp: AmqpSection = field(default_factory=AmqpSection)
    mqtt: MqttSection = field(default_factory=MqttSection)
    native: NativeSection = field(default_factory=NativeSection)
    log: LogSettings = field(default_factory=LogSettings)
    topics: TopicsSettings = field(default_factory=TopicsSettings)
    groups: GroupsSettings = field(default_factory=GroupsSettings)
    share: ShareSection = field(default_factory=ShareSection)
    transactions: TransactionsSettings = field(default_factory=TransactionsSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    logs: LogLineSettings = field(default_factory=LogLineSettings)
    shutdown: ShutdownSettings = field(default_factory=ShutdownSettings)
    tls: TlsSection = field(default_factory=TlsSection)
    security: SecuritySection = field(default_factory=SecuritySection)
    cluster: ClusterSection = field(default_factory=ClusterSection)

    def kafka_names(self) -> dict[str, str]:
        """What is set, under the node-level names that Kafka's tools know.

        Listeners are missing here: their ports are known only once the node listens.
        """
        groups, node, transactions = self.groups, self.node, self.transactions
        names = {
            "auto.create.topics.enable": _flag(on=self.topics.auto_create),
            "broker.id": str(node.id),
            "default.replication.factor": str(self.topics.default_replicas),
            "connections.max.idle.ms": str(self.kafka.connection_idle_ms),
            "group.consumer.heartbeat.interval.ms": str(groups.consumer_heartbeat_interval_ms),
            "group.consumer.max.heartbeat.interval.ms": str(
                groups.consumer_heartbeat_interval_max_ms
            ),
            "group.consumer.max.session.timeout.ms": str(groups.consumer_session_timeout_max_ms),
            "group.consumer.min.heartbeat.interval.ms": str(
                groups.consumer_heartbeat_interval_min_ms
            ),
            "group.consumer.min.session.timeout.ms": str(groups.consumer_session_timeout_min_ms),
            "group.consumer.max.size": str(groups.consumer_members_max),
            "group.consumer.migration.policy": groups.consumer_migration_policy,
            "group.consumer.session.timeout.ms": str(groups.consumer_session_timeout_ms),
            "group.initial.rebalance.delay.ms": str(groups.initial_rebalance_delay_ms),
            "group.max.session.timeout.ms": str(groups.session_timeout_max_ms),
            "group.max.size": str(groups.members_max),
            "group.min.session.timeout.ms": str(groups.session_timeout_min_ms),
            "log.dirs": node.data_dir,
            "log.retention.check.interval.ms": str(self.log.retention_check_interval_ms),
            "max.connections": str(self.kafka.max_connections),
            "node.id": str(node.id),
            "num.partitions": str(self.topics.default_partitions),
            "offsets.retention.minutes": str(max(1, groups.offsets_retention_ms // MINUTE_MS)),
            "offsets.topic.num.partitions": str(groups.offsets_partitions),
            "socket.request.max.bytes": str(self.kafka.frame_bytes_max),
            "transaction.max.timeout.ms": str(transactions.timeout_max_ms),
            "transaction.state.log.num.partitions": str(transactions.state_partitions),
            "transaction.two.phase.commit.enable": _flag(on=transactions.two_phase_enabled),
            "transactional.id.expiration.ms": str(transactions.id_expiration_ms),
        }
        names |= self.share.kafka_names()
        if node.rack is not None:
            names["broker.rack"] = node.rack
        for name, text in self.topics.defaults.items():
            names[TOPIC_KEYS[name].synonyms[0].name] = text
        return names


def _flag(*, on: bool) -> str:
    return "true" if on else "false"


Preset = Literal["local", "single"]

# Presets change defaults for a use case; a file, the environment and flags override them.
PRESETS: dict[str, dict[str, dict[str, object]]] = {
    # A developer's machine: groups are small, so the initial rebalance does not wait for more.
    "local": {
        "groups": {"initial_rebalance_delay_ms": 0},
        "amqp": {"enabled": True},
        "mqtt": {"enabled": True},
        "native": {"enabled": True},
    },
    # One node in production: the defaults.
    "single": {},
}
