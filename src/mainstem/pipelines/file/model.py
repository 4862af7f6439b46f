"""What may stand in a pipeline file. Descriptions are shown by ``schema`` and in the docs."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from mainstem.pipelines.connector.shapes import TableRoute
from mainstem.pipelines.connector.spec import Secret

Milliseconds = Annotated[int, Meta(ge=0)]
PositiveInt = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=0, le=65535)]


class TlsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How connections to the broker are protected."""

    enabled: Annotated[bool, Meta(description="Speak TLS.")] = True
    cert_path: Annotated[str | None, Meta(description="Certificate we show, PEM.")] = None
    key_path: Annotated[str | None, Meta(description="Its key, PEM.")] = None
    ca_path: Annotated[str | None, Meta(description="Certificates we believe, PEM.")] = None
    insecure: Annotated[bool, Meta(description="Refused: certificates are always checked.")] = False
    server_name: Annotated[
        str | None, Meta(description="Refused: the name that is dialled counts.")
    ] = None


class SaslSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How we log in to the broker."""

    mechanism: Annotated[
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], Meta(description="Way of logging in.")
    ] = "SCRAM-SHA-512"
    username: Annotated[str, Meta(description="User.")]
    password: Annotated[Secret, Meta(description="Password.")]


class BrokerSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which cluster the topics are in."""

    bootstrap_servers: Annotated[
        list[str], Meta(min_length=1, description="host:port; tried until one answers.")
    ] = msgspec.field(default_factory=lambda: ["127.0.0.1:9092"])
    metadata_refresh_ms: Annotated[Milliseconds | None, Meta(description="Without effect.")] = None
    connection_timeout_ms: Annotated[PositiveInt, Meta(description="Patience to connect.")] = 10_000
    request_timeout_ms: Annotated[PositiveInt, Meta(description="Patience per request.")] = 30_000
    tls: TlsSection | None = None
    sasl: SaslSection | None = None


class TopicConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the topic of one source is made."""

    partitions: Annotated[PositiveInt | None, Meta(description="Number of partitions.")] = None
    replication_factor: Annotated[PositiveInt | None, Meta(description="Copies.")] = None
    auto_create: Annotated[bool | None, Meta(description="Create it when it is missing.")] = None
    configs: Annotated[dict[str, str], Meta(description="Kafka's topic settings.")] = {}


class SourceRate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast a source may go."""

    events_per_second: Annotated[PositiveInt, Meta(description="Average, never exceeded.")]
    max_in_flight: Annotated[
        PositiveInt | None, Meta(description="Records between source and topic at once.")
    ] = None
    burst_size: Annotated[
        PositiveInt | None,
        Meta(description="Records let through at once; a tenth of a second's by default."),
    ] = None


class SinkRate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast a sink may be fed."""

    events_per_second: Annotated[PositiveInt, Meta(description="Average, never exceeded.")]
    burst_capacity: Annotated[
        PositiveInt | None,
        Meta(description="Records let through at once; a tenth of a second's by default."),
    ] = None


class SourceEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source, its transforms and the topic they lead to."""

    connector: Annotated[str, Meta(description="Name of the connector.")]
    topic: Annotated[str, Meta(description="Topic of records that no transform routes elsewhere.")]
    topic_config: TopicConfig = TopicConfig()
    enabled: bool = True
    rate_limit: SourceRate | None = None
    transforms: list[dict[str, Any]] = []
    dead_letter_topic: Annotated[
        str | None,
        Meta(description="Where records go that a step refuses; without it they stop the source."),
    ] = None
    tables: list[TableRoute] = []
    trigger_interval_ms: Milliseconds | None = None
    config: dict[str, Any] = {}
    schema_registry_url: Any = None


class SinkEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics, transforms and the sink they lead to."""

    connector: Annotated[str, Meta(description="Name of the connector.")]
    topics: Annotated[list[str], Meta(min_length=1, description="Names, or patterns with * and ?.")]
    consumer_group: Annotated[
        str | None, Meta(description="Group that shows the sink's lag; pipeline-<name> by default.")
    ] = None
    enabled: bool = True
    start_offset: Annotated[
        str | int,
        Meta(description="earliest, latest, an ISO 8601 moment, or an offset of every partition."),
    ] = "earliest"
    rate_limit: SinkRate | None = None
    transforms: list[dict[str, Any]] = []
    offset_commit_interval: Annotated[PositiveInt | None, Meta(description="Without effect.")] = (
        None
    )
    dead_letter_topic: Annotated[
        str | None,
        Meta(description="Where records go that a step or the sink refuses for good."),
    ] = None
    trigger_interval_ms: Milliseconds | None = None
    config: dict[str, Any] = {}
    schema_registry_url: Any = None


class TopicSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How topics come to be."""

    auto_create: Annotated[bool, Meta(description="Create topics that are missing.")] = True
    default_partitions: PositiveInt = 1
    default_replication_factor: PositiveInt = 1
    require_topic_exists: Annotated[
        bool, Meta(description="A missing topic is an error, even if it could be created.")
    ] = False
    validate_existing: Annotated[
        bool, Meta(description="A topic with other numbers than asked for is an error.")
    ] = False


class RetrySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often and how soon a pipeline that failed is started again."""

    max_retries: Annotated[
        int, Meta(ge=-1, description="Failures in a row; -1: never give up.")
    ] = 10
    initial_backoff_ms: PositiveInt = 1_000
    max_backoff_ms: PositiveInt = 60_000
    backoff_multiplier: Annotated[float, Meta(ge=1)] = 2.0


class HealthSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP port for probes: health, readiness, liveness, status and metrics."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: Annotated[Port, Meta(description="0 picks a free one and prints it.")] = 8083
    path: Annotated[str, Meta(pattern="^/")] = "/health"
    insecure: Annotated[
        bool, Meta(description="Allow an address that other machines can reach.")
    ] = False


class MetricsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prometheus metrics; on the health port unless they have one of their own."""

    enabled: bool = True
    port: Port | None = None


class SparkSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Spark that everything runs on."""

    master: Annotated[
        str, Meta(description="local[*] inside this process, spark://, yarn or k8s://.")
    ] = "local[*]"
    driver_memory: str = "1g"
    web_interface: bool = False
    conf: Annotated[dict[str, str], Meta(description="Handed to Spark as it is.")] = {}


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all pipelines of the file share."""

    state_dir: Annotated[
        str, Meta(min_length=1, description="Checkpoints and connectors' memory. Keep it.")
    ] = "./data/connect-state"
    topic: TopicSettings = TopicSettings()
    retry: RetrySettings = RetrySettings()
    health: HealthSettings = HealthSettings()
    metrics: MetricsSettings = MetricsSettings()
    spark: SparkSection = SparkSection()
    trigger_interval_ms: Annotated[
        Milliseconds, Meta(description="Pause between looks for new records.")
    ] = 200
    stop_timeout_ms: Annotated[
        PositiveInt, Meta(description="Patience for a batch under way when asked to stop.")
    ] = 30_000
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    telemetry: Any = None


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record of a test. Values that are no text are written as JSON."""

    value: Any = None
    key: str | None = None
    topic: str | None = None
    headers: dict[str, str] = {}
    timestamp: str | None = None


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One test of a pipeline's transforms."""

    name: str
    pipeline: Annotated[str, Meta(description="sources.NAME or sinks.NAME")]
    input: list[Record]
    expect: Annotated[
        list[dict[str, Any]],
        Meta(description="What must come out; what is not mentioned may be anything."),
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
