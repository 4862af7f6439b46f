"""Topics of another cluster: the suite against a second node, and both ways with Apache Kafka."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.peers.kafka.peer import ApacheKafka
from bench.peers.maven import SHORT_LIVED
from tests.integration.pipelines.stage import produce, records

from mainstem.client.admin import Admin, NewTopic
from mainstem.pipelines.connector.shapes import ConnectorContext
from mainstem.pipelines.connector.wire import as_wire
from mainstem.pipelines.connectors import datagen, kafka
from mainstem.testing.connector_suite import SinkSuite, SourceSuite, run_once
from mainstem.testing.local_node import LocalNode

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with LocalNode(arguments=["--preset", "local"]) as running:
        yield running


def topic_on(bootstrap: str) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"

    async def make() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topics([NewTopic(name=name, partitions=2)])

    asyncio.run(make())
    return name


class TestKafkaSource(SourceSuite):
    connector = kafka.SOURCE
    rows = 25

    @pytest.fixture(autouse=True)
    def _topic(self, node: LocalNode) -> None:
        self.servers, self.topic = node.kafka, topic_on(node.kafka)
        produce(self.servers, self.topic, [f"value {n}".encode() for n in range(self.rows)])

    def config(self, tmp_path: Path) -> dict[str, object]:
        return {"bootstrap_servers": [self.servers], "topics": [self.topic]}

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        return {"bootstrap_servers": [self.servers], "topics": ["no-such-topic"]}


class TestKafkaSink(SinkSuite):
    connector = kafka.SINK

    @pytest.fixture(autouse=True)
    def _topic(self, node: LocalNode) -> None:
        self.servers, self.topic = node.kafka, topic_on(node.kafka)

    def config(self, tmp_path: Path) -> dict[str, object]:
        return {
            "bootstrap_servers": [self.servers],
            "topic": self.topic,
            "delivery": "exactly-once",
        }

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        return {"bootstrap_servers": [self.servers], "topic": "no-such-topic"}

    def written(self, tmp_path: Path) -> list[bytes]:
        return [each.value or b"" for each in records(self.servers, self.topic)]


@pytest.mark.needs("java", "maven")
def test_records_go_to_apache_kafka_and_come_back(spark: Any, tmp_path: Path) -> None:
    with ApacheKafka(jvm=SHORT_LIVED) as peer:
        topic = topic_on(peer.kafka)
        made = datagen.DatagenConfig(kind="numbers", count=50, rows_per_second=None)
        context = ConnectorContext(
            pipeline="sinks.kafka", state_dir=tmp_path, rows_per_batch_max=20
        )
        frame = as_wire(datagen.SOURCE.read(spark, made, context), topic="ours")
        sink = kafka.KafkaSinkConfig(bootstrap_servers=[peer.kafka], topic=topic)
        run_once(kafka.SINK.write(frame, sink, context), tmp_path)

        source = kafka.KafkaSourceConfig(bootstrap_servers=[peer.kafka], topics=[topic])
        found: list[bytes] = []

        def take(batch: Any, batch_id: int) -> None:
            found.extend(bytes(row.value) for row in batch.collect())

        back = kafka.SOURCE.read(spark, source, context).writeStream.foreachBatch(take)
        run_once(back, tmp_path / "back")
    expected = datagen.SOURCE.read(
        spark, made, ConnectorContext(pipeline="p", state_dir=tmp_path, streaming=False)
    )
    assert Counter(found) == Counter(bytes(row.value) for row in expected.collect())
