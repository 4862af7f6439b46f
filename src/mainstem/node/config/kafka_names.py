"""Values of a node that Kafka's names cannot set, under the names that Kafka's tools read.

``Config.kafka_names`` has what the configuration sets; this adds limits that are fixed, and
settings that Kafka words differently. Only what is true here is named.
"""

from mainstem.broker.services.client_metrics_service import PUSH_BYTES_MAX
from mainstem.broker.services.topics_service import INTERNAL_CONFIGS, INTERNAL_REPLICAS
from mainstem.coordination.consumer.assignors import ASSIGNORS
from mainstem.model.limits import FETCH_RESPONSE_BYTES_MAX, FETCH_SESSIONS_MAX
from mainstem.model.topic_name import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from mainstem.node.config.settings import Config
from mainstem.protocols.kafka.handlers.cluster import PARTITIONS_PER_RESPONSE_MAX
from mainstem.security.authentication.tokens import LIFETIME_MS_MAX, RENEWAL_MS

_TLS_VERSIONS = {"1.2": "TLSv1.2,TLSv1.3", "1.3": "TLSv1.3"}


def kafka_config_values(config: Config) -> dict[str, str]:
    """Every name and its value."""
    groups, transactions, log = config.groups, config.transactions, config.log
    return {
        **config.kafka_names(),
        "auto.leader.rebalance.enable": "true",
        "controlled.shutdown.enable": "true",
        "delegation.token.expiry.time.ms": str(RENEWAL_MS),
        "delegation.token.max.lifetime.ms": str(LIFETIME_MS_MAX),
        "fetch.max.bytes": str(FETCH_RESPONSE_BYTES_MAX),
        "group.consumer.assignors": ",".join(ASSIGNORS),
        "group.coordinator.rebalance.protocols": "classic,consumer,share",
        "group.share.assignors": "simple",
        "log.cleaner.backoff.ms": str(log.cleaner_interval_ms),
        "log.cleaner.dedupe.buffer.size": str(log.cleaner_keys_bytes_max),
        "log.cleaner.enable": "true" if log.cleaner_enabled else "false",
        "log.dir": config.node.data_dir,
        "max.incremental.fetch.session.cache.slots": str(FETCH_SESSIONS_MAX),
        "max.request.partition.size.limit": str(PARTITIONS_PER_RESPONSE_MAX),
        "offset.metadata.max.bytes": str(groups.offset_metadata_bytes_max),
        "offsets.retention.check.interval.ms": str(groups.offsets_retention_check_ms),
        "offsets.topic.replication.factor": str(INTERNAL_REPLICAS),
        "offsets.topic.segment.bytes": INTERNAL_CONFIGS[GROUP_OFFSETS_TOPIC]["segment.bytes"],
        "process.roles": "broker,controller",
        "remote.log.storage.system.enable": "false",
        "telemetry.max.bytes": str(PUSH_BYTES_MAX),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(
            transactions.timeout_check_ms
        ),
        "transaction.partition.verification.enable": "true",
        "transaction.remove.expired.transaction.cleanup.interval.ms": str(
            transactions.expiration_check_ms
        ),
        "transaction.state.log.replication.factor": str(INTERNAL_REPLICAS),
        "transaction.state.log.segment.bytes": INTERNAL_CONFIGS[TRANSACTION_STATE_TOPIC][
            "segment.bytes"
        ],
        **_of_logins(config),
    }


def _of_logins(config: Config) -> dict[str, str]:
    security, tls = config.security, config.tls
    names = {
        "connections.max.reauth.ms": str(security.reauthenticate_ms),
        "sasl.enabled.mechanisms": ",".join(security.mechanisms),
        "sasl.oauthbearer.sub.claim.name": security.oauth_user_claim,
        "ssl.client.auth": tls.client_certificates,
        "ssl.enabled.protocols": _TLS_VERSIONS[tls.minimum],
        "ssl.principal.mapping.rules": ",".join(tls.name_rules) or "DEFAULT",
    }
    if security.oauth_audiences:
        names["sasl.oauthbearer.expected.audience"] = ",".join(security.oauth_audiences)
    if security.oauth_issuer is not None:
        names["sasl.oauthbearer.expected.issuer"] = security.oauth_issuer
    if security.oauth_keys is not None:
        names["sasl.oauthbearer.jwks.endpoint.url"] = security.oauth_keys
    return names
