"""The settings of a node by Kafka's names: those that administrators see and may change.

Two kinds: node-level defaults of topic settings (``log.retention.ms``), which may be changed while
the node runs, and settings fixed at start, which are read-only. A node lists of the fixed ones only
those it was started with, so that every listed value is in effect.
"""

from collections.abc import Mapping

from mainstem.model.config.kafka_only_names import KAFKA_ONLY_NAMES
from mainstem.model.config.key import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    STRING,
    ConfigKey,
    Value,
    unknown_key,
)
from mainstem.model.config.topic import TOPIC_KEYS
from mainstem.model.errors import ErrorCode, InvalidRequest


def _fixed(
    name: str, kind: str, default: str | None, documentation: str, **rest: object
) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=kind,
        default=default,
        documentation=documentation,
        read_only=True,
        **rest,  # type: ignore[arg-type]
    )


_FIXED = (
    _fixed("advertised.listeners", LIST, None, "The addresses that clients connect to."),
    _fixed("auto.create.topics.enable", BOOLEAN, "true",
           "Whether a missing topic is created when a client requests it."),
    _fixed("broker.id", INT, None, "The id of this node."),
    _fixed("broker.rack", STRING, None, "The rack of this node.", nullable=True),
    _fixed("connections.max.idle.ms", LONG, None, "How long an idle connection is kept open."),
    _fixed("default.replication.factor", INT, "1", "Replicas of a topic by default.",
           at_least=1),
    _fixed("delete.topic.enable", BOOLEAN, "true", "Whether clients may delete topics."),
    _fixed("group.consumer.heartbeat.interval.ms", INT, None,
           "How often members of consumer groups send heartbeats.", at_least=1),
    _fixed("group.consumer.max.size", INT, None,
           "The largest number of members of a consumer group.", at_least=1),
    _fixed("group.consumer.max.heartbeat.interval.ms", INT, None,
           "The longest heartbeat interval that a consumer group may set.", at_least=1),
    _fixed("group.consumer.max.session.timeout.ms", INT, None,
           "The longest session that a consumer group may set.", at_least=1),
    _fixed("group.consumer.min.heartbeat.interval.ms", INT, None,
           "The shortest heartbeat interval that a consumer group may set.", at_least=1),
    _fixed("group.consumer.min.session.timeout.ms", INT, None,
           "The shortest session that a consumer group may set.", at_least=1),
    _fixed("group.consumer.migration.policy", STRING, None,
           "Which ways a group with members may change its protocol.",
           one_of=("bidirectional", "upgrade", "downgrade", "disabled")),
    _fixed("group.consumer.session.timeout.ms", INT, None,
           "Time without a heartbeat after which a consumer group member is dead.", at_least=1),
    _fixed("group.initial.rebalance.delay.ms", INT, None,
           "How long a new group waits for further members.", at_least=0),
    _fixed("group.max.session.timeout.ms", INT, None, "The longest session of a group member.",
           at_least=1),
    _fixed("group.max.size", INT, None, "The largest number of members of a group.", at_least=1),
    _fixed("group.min.session.timeout.ms", INT, None, "The shortest session of a group member.",
           at_least=1),
    _fixed("group.share.delivery.count.limit", INT, None,
           "How often a record is delivered before a share group archives it.", at_least=2),
    _fixed("group.share.heartbeat.interval.ms", INT, None,
           "How often members of share groups send heartbeats.", at_least=1),
    _fixed("group.share.max.delivery.count.limit", INT, None,
           "The largest delivery limit that a share group may set.", at_least=2),
    _fixed("group.share.max.heartbeat.interval.ms", INT, None,
           "The longest heartbeat interval that a share group may set.", at_least=1),
    _fixed("group.share.max.partition.max.record.locks", INT, None,
           "The largest number of records in delivery that a share group may set.", at_least=1),
    _fixed("group.share.max.record.lock.duration.ms", INT, None,
           "The longest lock that a share group may set.", at_least=1),
    _fixed("group.share.max.session.timeout.ms", INT, None,
           "The longest session that a share group may set.", at_least=1),
    _fixed("group.share.max.share.sessions", INT, None,
           "How many members of share groups read from a node at once.", at_least=1),
    _fixed("group.share.max.size", INT, None,
           "The largest number of members of a share group.", at_least=1),
    _fixed("group.share.min.delivery.count.limit", INT, None,
           "The smallest delivery limit that a share group may set.", at_least=2),
    _fixed("group.share.min.heartbeat.interval.ms", INT, None,
           "The shortest heartbeat interval that a share group may set.", at_least=1),
    _fixed("group.share.min.partition.max.record.locks", INT, None,
           "The smallest number of records in delivery that a share group may set.", at_least=1),
    _fixed("group.share.min.record.lock.duration.ms", INT, None,
           "The shortest lock that a share group may set.", at_least=1),
    _fixed("group.share.min.session.timeout.ms", INT, None,
           "The shortest session that a share group may set.", at_least=1),
    _fixed("group.share.partition.max.record.locks", INT, None,
           "Records of a partition between the first and the last in delivery.", at_least=1),
    _fixed("group.share.record.lock.duration.ms", INT, None,
           "How long a record stays locked before it is delivered again.", at_least=1),
    _fixed("group.share.session.timeout.ms", INT, None,
           "Time without a heartbeat after which a share group member is dead.", at_least=1),
    _fixed("auto.leader.rebalance.enable", BOOLEAN, None,
           "Whether writers move back to the replica that is preferred."),
    _fixed("connections.max.reauth.ms", LONG, None,
           "How long a SASL login is valid; 0: until the connection ends."),
    _fixed("controlled.shutdown.enable", BOOLEAN, None,
           "Whether a node hands its partitions over before it stops."),
    _fixed("delegation.token.expiry.time.ms", LONG, None,
           "How long a delegation token is valid before it must be renewed."),
    _fixed("delegation.token.max.lifetime.ms", LONG, None,
           "The longest lifetime of a delegation token."),
    _fixed("fetch.max.bytes", INT, None, "The largest answer to a fetch."),
    _fixed("group.consumer.assignors", LIST, None,
           "Assignors of consumer groups, the default first."),
    _fixed("group.coordinator.rebalance.protocols", LIST, None,
           "The group protocols that are enabled."),
    _fixed("group.share.assignors", LIST, None, "Assignors of share groups."),
    _fixed("listener.security.protocol.map", STRING, None,
           "The security protocol of each listener, by name."),
    _fixed("log.cleaner.backoff.ms", LONG, None, "How often compaction looks for work."),
    _fixed("log.cleaner.dedupe.buffer.size", LONG, None, "Memory for the keys of one compaction."),
    _fixed("log.cleaner.enable", BOOLEAN, None, "Whether topics are compacted."),
    _fixed("log.dir", STRING, None, "The folder that holds the node's data."),
    _fixed("max.incremental.fetch.session.cache.slots", INT, None,
           "The largest number of fetch sessions of a listener."),
    _fixed("max.request.partition.size.limit", INT, None,
           "Partitions in one answer to DescribeTopicPartitions."),
    _fixed("offset.metadata.max.bytes", INT, None, "The largest metadata of a committed offset."),
    _fixed("offsets.retention.check.interval.ms", LONG, None,
           "How often expired offsets are searched for."),
    _fixed("offsets.topic.replication.factor", INT, None,
           "Replicas of the internal topic of groups; fewer where there are fewer nodes."),
    _fixed("offsets.topic.segment.bytes", INT, None, "Segments of the internal topic of groups."),
    _fixed("process.roles", LIST, None, "The roles of this node."),
    _fixed("remote.log.storage.system.enable", BOOLEAN, None,
           "Whether old segments are moved to remote storage."),
    _fixed("sasl.enabled.mechanisms", LIST, None, "The SASL mechanisms of the listeners."),
    _fixed("sasl.oauthbearer.expected.audience", LIST, None,
           "Audiences of which a token must name one."),
    _fixed("sasl.oauthbearer.expected.issuer", STRING, None, "The issuer that tokens must name."),
    _fixed("sasl.oauthbearer.jwks.endpoint.url", STRING, None,
           "Where the issuer's public keys are."),
    _fixed("sasl.oauthbearer.sub.claim.name", STRING, None, "The claim that names the user."),
    _fixed("ssl.client.auth", STRING, None, "Whether clients present a certificate."),
    _fixed("ssl.enabled.protocols", LIST, None, "The enabled versions of TLS."),
    _fixed("ssl.principal.mapping.rules", STRING, None, "How a certificate's name becomes a user."),
    _fixed("telemetry.max.bytes", INT, None, "The largest push of a client's metrics."),
    _fixed("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, None,
           "How late a transaction's time-out may be noticed."),
    _fixed("transaction.partition.verification.enable", BOOLEAN, None,
           "Whether a partition must belong to the transaction that writes to it."),
    _fixed("transaction.remove.expired.transaction.cleanup.interval.ms", INT, None,
           "How often unused transactional ids are searched for."),
    _fixed("transaction.state.log.replication.factor", INT, None,
           "Replicas of the internal topic of transactions; fewer where there are fewer nodes."),
    _fixed("transaction.state.log.segment.bytes", INT, None,
           "Segments of the internal topic of transactions."),
    _fixed("listeners", LIST, None, "The addresses that this node listens on."),
    _fixed("log.dirs", LIST, None, "The folder that holds the node's data."),
    _fixed("log.retention.check.interval.ms", LONG, None, "How often retention runs.", at_least=1),
    _fixed("max.connections", INT, None, "The largest number of client connections.", at_least=0),
    _fixed("node.id", INT, None, "The id of this node."),
    _fixed("num.partitions", INT, "1", "Partitions of a topic by default.", at_least=1),
    _fixed("offsets.retention.minutes", INT, None,
           "How long the offsets of an empty group are kept.", at_least=1),
    _fixed("offsets.topic.num.partitions", INT, None,
           "Partitions of the internal topic of groups and offsets.", at_least=1),
    _fixed("socket.request.max.bytes", INT, None, "The largest request.", at_least=1),
    _fixed("transaction.max.timeout.ms", INT, None, "The longest transaction.", at_least=1),
    _fixed("transaction.state.log.num.partitions", INT, None,
           "Partitions of the internal topic of transactions.", at_least=1),
    _fixed("transaction.two.phase.commit.enable", BOOLEAN, None,
           "Whether external coordinators may end transactions (two-phase commit)."),
    _fixed("transactional.id.expiration.ms", INT, None,
           "How long an unused transactional id is kept.", at_least=1),
)  # fmt: skip


def _topic_defaults() -> dict[str, ConfigKey]:
    keys = {}
    for key in TOPIC_KEYS.values():
        for synonym in key.synonyms:
            # In Kafka only the last of several names, the coarsest, has the default.
            has_default = synonym is key.synonyms[-1] and key.default is not None
            keys[synonym.name] = ConfigKey(
                name=synonym.name,
                type=key.type if synonym.factor == 1 else INT,
                default=_in_units(key.default, synonym.factor) if has_default else None,
                nullable=not has_default,
                documentation=f"The default of `{key.name}`. {key.documentation}",
                at_least=key.at_least if synonym.factor == 1 else -1,
                at_most=key.at_most,
                also=key.also,
                one_of=key.one_of,
                read_only=synonym.factor != 1,
            )
    return keys


def _in_units(text: str | None, factor: int) -> str | None:
    return text if text is None or factor == 1 else str(int(text) // factor)


NODE_KEYS: dict[str, ConfigKey] = {**_topic_defaults(), **{key.name: key for key in _FIXED}}
"""Every node setting by name."""


def parse_node_config(name: str, configs: Mapping[str, str]) -> Value:
    """The typed value of a node setting that has a default."""
    key = NODE_KEYS[name]
    text = configs.get(name, key.default)
    assert text is not None, f"{name} has no default"
    return key.parse(text)


def check_node_configs(configs: Mapping[str, str], *, dynamic: bool) -> None:
    """Check names and values; ``dynamic`` ones must also be changeable while the node runs.

    Raises:
        InvalidRequest: an unknown name, a value out of bounds, a fixed setting.
    """
    for name, text in configs.items():
        key = NODE_KEYS.get(name)
        if key is None:
            raise unknown_node_key(name)
        if dynamic and key.read_only:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                f"{name} cannot be changed while the node runs",
                subject=name,
                remedy="set it in the node's configuration and restart",
            )
        key.parse(text)


def unknown_node_key(name: str) -> InvalidRequest:
    """The refusal of a name that is no setting of this node; it may be one of Kafka's."""
    if name not in KAFKA_ONLY_NAMES:
        return unknown_key(name, NODE_KEYS, "node")
    return InvalidRequest(
        ErrorCode.INVALID_REQUEST,
        f"{name} is a setting of Apache Kafka that has no effect on this node",
        subject=name,
        remedy="leave it out",
    )
