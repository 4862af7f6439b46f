"""The ``kafka`` connector: topics of another cluster, Apache Kafka's or Mainstem's.

The source is exactly once. The sink writes at least once by default, which every cluster supports;
``delivery: exactly-once`` needs a cluster with prepared transactions (KIP-939), such as Mainstem.
"""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from mainstem.client.admin import Admin
from mainstem.model.errors import MainstemError
from mainstem.pipelines.connector.shapes import (
    ConnectorContext,
    Discovered,
    Finding,
    failed,
    passed,
)
from mainstem.pipelines.connector.spec import Category, DeliveryGuarantee, Spec
from mainstem.pipelines.connector.topic_writer import topic_writer
from mainstem.pipelines.file.model import BrokerSection, BrokerTlsSection, SaslSection
from mainstem.pipelines.running.client_options import cluster_of, spark_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class ClusterConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The connection to the other cluster."""

    bootstrap_servers: Annotated[
        list[str],
        Meta(min_length=1, description="List of host:port, tried in turn until one answers."),
    ]
    tls: Annotated[BrokerTlsSection | None, Meta(description="TLS settings.")] = None
    sasl: Annotated[SaslSection | None, Meta(description="SASL settings.")] = None
    connection_timeout_ms: Annotated[int, Meta(ge=1, description="Connection timeout.")] = 10_000
    request_timeout_ms: Annotated[int, Meta(ge=1, description="Request timeout.")] = 30_000

    def broker(self) -> BrokerSection:
        """The connection as the broker section of a pipeline file."""
        return BrokerSection(
            bootstrap_servers=self.bootstrap_servers,
            tls=self.tls,
            sasl=self.sasl,
            connection_timeout_ms=self.connection_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
        )


class KafkaSourceConfig(ClusterConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The topics to read."""

    topics: Annotated[list[str], Meta(min_length=1, description="Topics of the other cluster.")]
    start: Annotated[
        Literal["earliest", "latest"], Meta(description="Where a new pipeline starts.")
    ] = "earliest"
    group: Annotated[
        str | None,
        Meta(description="Consumer group in the other cluster to which the progress is committed."),
    ] = None
    keep_topics: Annotated[
        bool, Meta(description="Write to topics of the same name instead of the source's topic.")
    ] = False
    keep_partitions: Annotated[
        bool, Meta(description="Keep the partition number of each record.")
    ] = False
    fail_on_data_loss: Annotated[
        bool, Meta(description="Fail if records were deleted before they were read.")
    ] = True


class KafkaSinkConfig(ClusterConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The topic to write, and how."""

    topic: Annotated[
        str | None,
        Meta(description="Topic of all records; by default the topic they were read from."),
    ] = None
    keep_partitions: Annotated[
        bool, Meta(description="Keep the partition number of each record.")
    ] = False
    delivery: Annotated[
        Literal["at-least-once", "exactly-once"],
        Meta(description="exactly-once requires prepared transactions (KIP-939)."),
    ] = "at-least-once"
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"],
        Meta(description="Compression of batches."),
    ] = "none"


def _topics(config: ClusterConfig) -> list[str]:
    async def ask() -> list[str]:
        async with cluster_of(config.broker()) as cluster:
            return sorted(await Admin(cluster, timeout_ms=config.request_timeout_ms).list_topics())

    return asyncio.run(ask())


def _missing(config: ClusterConfig, names: list[str]) -> list[Finding]:
    try:
        known = _topics(config)
    except MainstemError as error:
        return [failed(error.cause or str(error), error.remedy, retriable=error.retriable)]
    found = [
        failed(f"topic {name} does not exist", "create it, or correct the name", retriable=True)
        for name in names
        if name not in known
    ]
    return found or [passed(f"{', '.join(config.bootstrap_servers)} answers")]


class KafkaSource:
    """Reads topics of another cluster."""

    def spec(self) -> Spec:
        """The metadata of this source."""
        return Spec(
            name="kafka",
            kind="source",
            title="Topics of another Kafka cluster",
            category=Category.QUEUE,
            config=KafkaSourceConfig,
        )

    def check(self, config: KafkaSourceConfig) -> list[Finding]:
        """Whether the cluster answers and has the topics."""
        return _missing(config, config.topics)

    def discover(self, config: KafkaSourceConfig) -> list[Discovered]:
        """The topics of the cluster."""
        return [Discovered(name=name, config={"topics": [name]}) for name in _topics(config)]

    def read(
        self, spark: "SparkSession", config: KafkaSourceConfig, context: ConnectorContext
    ) -> "DataFrame":
        """The records, unmodified."""
        from mainstem.pipelines.connector.wire import PLAIN_FIELDS

        options: dict[str, Any] = {
            **spark_options(config.broker()),
            "subscribe": ",".join(config.topics),
            "includeHeaders": "true",
            "startingOffsets": config.start,
            "failOnDataLoss": str(config.fail_on_data_loss).lower(),
        }
        if context.plain_fields:
            options["includePlainFields"] = "true"
        if not context.streaming:
            options["startingOffsets"] = "earliest"
        if config.group is not None:
            options["kafka.group.id"] = config.group
        if context.streaming and context.rows_per_batch_max is not None:
            options["maxOffsetsPerTrigger"] = str(context.rows_per_batch_max)
        reader = spark.readStream if context.streaming else spark.read
        frame = reader.format("mainstem").options(**options).load()
        columns = ["key", "value", "headers", "timestamp"]
        columns += [PLAIN_FIELDS] if context.plain_fields else []
        columns += ["topic"] if config.keep_topics else []
        columns += ["partition"] if config.keep_partitions else []
        return frame.select(*columns)


class KafkaSink:
    """Writes topics of another cluster."""

    def spec(self) -> Spec:
        """The metadata of this sink."""
        return Spec(
            name="kafka",
            kind="sink",
            title="Topics of another Kafka cluster",
            category=Category.QUEUE,
            config=KafkaSinkConfig,
            delivery=DeliveryGuarantee.AT_LEAST_ONCE,
            notes="delivery: exactly-once if the cluster supports prepared transactions.",
        )

    def check(self, config: KafkaSinkConfig) -> list[Finding]:
        """Whether the cluster answers and has the topic."""
        return _missing(config, [] if config.topic is None else [config.topic])

    def write(
        self, frame: "DataFrame", config: KafkaSinkConfig, context: ConnectorContext
    ) -> "DataStreamWriter":
        """A writer of unmodified records."""
        out = frame if config.keep_partitions else frame.drop("partition")
        options = {
            **spark_options(config.broker()),
            "delivery": config.delivery,
            "sinkName": context.pipeline.replace("/", "-"),
        }
        if config.compression != "none":
            options["kafka.compression.type"] = config.compression
        if config.topic is not None:
            out = out.drop("topic")
            options["topic"] = config.topic
        return topic_writer(out, options, context.output_mode)


SOURCE = KafkaSource()
SINK = KafkaSink()
