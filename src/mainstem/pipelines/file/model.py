"""The structure of a pipeline file. Descriptions are shown by ``schema`` and in the docs."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from mainstem.pipelines.connector.shapes import TableRoute
from mainstem.pipelines.connector.spec import Secret

Milliseconds = Annotated[int, Meta(ge=0)]
PositiveInt = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=0, le=65535)]


class BrokerTlsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS settings of connections to the broker."""

    enabled: Annotated[bool, Meta(description="Use TLS.")] = True
    cert_path: Annotated[str | None, Meta(description="Client certificate, PEM.")] = None
    key_path: Annotated[str | None, Meta(description="Private key of the certificate, PEM.")] = None
    ca_path: Annotated[str | None, Meta(description="CA certificates, PEM.")] = None
    insecure: Annotated[
        bool, Meta(description="Not supported: certificates are always verified.")
    ] = False
    server_name: Annotated[
        str | None, Meta(description="Not supported: the name in bootstrap_servers is verified.")
    ] = None


class SaslSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """SASL settings of connections to the broker."""

    mechanism: Annotated[
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], Meta(description="SASL mechanism.")
    ] = "SCRAM-SHA-512"
    username: Annotated[str, Meta(description="User name.")]
    password: Annotated[Secret, Meta(description="Password.")]


class BrokerSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cluster of the topics."""

    bootstrap_servers: Annotated[
        list[str],
        Meta(min_length=1, description="List of host:port, tried in turn until one answers."),
    ] = msgspec.field(default_factory=lambda: ["127.0.0.1:9092"])
    metadata_refresh_ms: Annotated[Milliseconds | None, Meta(description="Has no effect.")] = None
    connection_timeout_ms: Annotated[PositiveInt, Meta(description="Connection timeout.")] = 10_000
    request_timeout_ms: Annotated[PositiveInt, Meta(description="Request timeout.")] = 30_000
    tls: BrokerTlsSection | None = None
    sasl: SaslSection | None = None


class TopicConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the topic of one source is created."""

    partitions: Annotated[PositiveInt | None, Meta(description="Number of partitions.")] = None
    replication_factor: Annotated[PositiveInt | None, Meta(description="Number of replicas.")] = (
        None
    )
    auto_create: Annotated[bool | None, Meta(description="Create the topic if it is missing.")] = (
        None
    )
    configs: Annotated[dict[str, str], Meta(description="Topic configs.")] = {}


class SourceRate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rate limit of a source."""

    events_per_second: Annotated[PositiveInt, Meta(description="Maximum average rate.")]
    max_in_flight: Annotated[
        PositiveInt | None, Meta(description="Maximum number of records between source and topic.")
    ] = None
    burst_size: Annotated[
        PositiveInt | None,
        Meta(description="Records in one burst; by default those of a tenth of a second."),
    ] = None


class SinkRate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rate limit of a sink."""

    events_per_second: Annotated[PositiveInt, Meta(description="Maximum average rate.")]
    burst_capacity: Annotated[
        PositiveInt | None,
        Meta(description="Records in one burst; by default those of a tenth of a second."),
    ] = None


class SourceEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source, its transforms and its topic."""

    connector: Annotated[str, Meta(description="Name of the connector.")]
    topic: Annotated[str, Meta(description="Topic of records that no transform routes to another.")]
    topic_config: TopicConfig = TopicConfig()
    enabled: bool = True
    rate_limit: SourceRate | None = None
    transforms: list[dict[str, Any]] = []
    dead_letter_topic: Annotated[
        str | None,
        Meta(description="Topic of records that a step refuses; without it they stop the source."),
    ] = None
    tables: list[TableRoute] = []
    trigger_interval_ms: Milliseconds | None = None
    config: dict[str, Any] = {}
    schema_registry_url: Any = None


class SinkEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics, their transforms and a sink."""

    connector: Annotated[str, Meta(description="Name of the connector.")]
    topics: Annotated[
        list[str], Meta(min_length=1, description="Topic names, or patterns with * and ?.")
    ]
    consumer_group: Annotated[
        str | None, Meta(description="Consumer group that shows the lag; default pipeline-<name>.")
    ] = None
    enabled: bool = True
    start_offset: Annotated[
        str | int,
        Meta(
            description="earliest, latest, an ISO 8601 timestamp, or an offset for all partitions."
        ),
    ] = "earliest"
    rate_limit: SinkRate | None = None
    transforms: list[dict[str, Any]] = []
    offset_commit_interval: Annotated[PositiveInt | None, Meta(description="Has no effect.")] = None
    dead_letter_topic: Annotated[
        str | None,
        Meta(description="Topic of records that a step or the sink permanently refuses."),
    ] = None
    trigger_interval_ms: Milliseconds | None = None
    config: dict[str, Any] = {}
    schema_registry_url: Any = None


class TopicCreationSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How topics are created and checked."""

    auto_create: Annotated[bool, Meta(description="Create topics that are missing.")] = True
    default_partitions: PositiveInt = 1
    default_replication_factor: PositiveInt = 1
    require_topic_exists: Annotated[
        bool, Meta(description="A missing topic is an error, even if it could be created.")
    ] = False
    validate_existing: Annotated[
        bool, Meta(description="A topic with other counts than configured is an error.")
    ] = False


class RetrySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often and when a failed pipeline is restarted."""

    max_retries: Annotated[
        int, Meta(ge=-1, description="Consecutive failures before giving up; -1: unlimited.")
    ] = 10
    initial_backoff_ms: PositiveInt = 1_000
    max_backoff_ms: PositiveInt = 60_000
    backoff_multiplier: Annotated[float, Meta(ge=1)] = 2.0


class HealthSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP port for probes: health, readiness, liveness, status and metrics."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: Annotated[Port, Meta(description="0 selects a free port and prints it.")] = 8083
    path: Annotated[str, Meta(pattern="^/")] = "/health"
    insecure: Annotated[
        bool, Meta(description="Allow an address that other machines can access.")
    ] = False


class MetricsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prometheus metrics; on the health port unless a separate port is set."""

    enabled: bool = True
    port: Port | None = None


class SparkSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Spark settings."""

    master: Annotated[
        str, Meta(description="local[*] inside this process, spark://, yarn or k8s://.")
    ] = "local[*]"
    driver_memory: str = "1g"
    web_interface: bool = False
    conf: Annotated[dict[str, str], Meta(description="Passed to Spark unchanged.")] = {}


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that all pipelines of the file share."""

    state_dir: Annotated[
        str,
        Meta(
            min_length=1,
            description="Directory of checkpoints and connector state. Do not delete it.",
        ),
    ] = "./data/connect-state"
    topic: TopicCreationSettings = TopicCreationSettings()
    retry: RetrySettings = RetrySettings()
    health: HealthSettings = HealthSettings()
    metrics: MetricsSettings = MetricsSettings()
    spark: SparkSection = SparkSection()
    trigger_interval_ms: Annotated[
        Milliseconds, Meta(description="Interval between checks for new records.")
    ] = 200
    stop_timeout_ms: Annotated[
        PositiveInt, Meta(description="How long to wait for a running batch when stopping.")
    ] = 30_000
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    telemetry: Any = None


class CaseRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record of a test. Values other than text are written as JSON."""

    value: Any = None
    key: str | None = None
    topic: str | None = None
    headers: dict[str, str] = {}
    timestamp: str | None = None


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One test of a pipeline's transforms."""

    name: str
    pipeline: Annotated[str, Meta(description="sources.NAME or sinks.NAME")]
    input: list[CaseRecord]
    expect: Annotated[
        list[dict[str, Any]],
        Meta(description="Expected records; fields that are not listed may have any value."),
    ] = []
    expect_dead: list[dict[str, Any]] = []


class FileModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    version: str | float | int
    broker: BrokerSection = BrokerSection()
    sources: dict[str, SourceEntry] = {}
    sinks: dict[str, SinkEntry] = {}
    settings: Settings = Settings()
    tests: list[Case] = []
    distributed: Any = None
