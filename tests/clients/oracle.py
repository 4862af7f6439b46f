"""The scenarios' own view of a server, independent of the client under test."""

from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic
from tests.clients.records import Record

TIMEOUT_S = 60


class Oracle:
    """Sets a scene on a server and looks at what became of it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, topic: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        """Create a topic."""
        new = NewTopic(topic, partitions, config=configs or {})
        for future in self._admin.create_topics([new]).values():
            future.result(TIMEOUT_S)

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic; empty when there is no such topic."""
        known = self._admin.list_topics(timeout=TIMEOUT_S).topics.get(topic)
        return sorted(known.partitions) if known else []

    def writer(self, topic: str) -> str:
        """The address of the node that leads the topic's first partition."""
        found = self._admin.list_topics(topic, timeout=30)
        leader = found.brokers[found.topics[topic].partitions[0].leader]
        return f"{leader.host}:{leader.port}"

    def config(self, topic: str, name: str) -> str:
        """One setting of a topic."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        [future] = self._admin.describe_configs([resource]).values()
        return str(future.result(TIMEOUT_S)[name].value)

    def produce(self, topic: str, records: Iterable[Record], *, linger_ms: int = 5) -> None:
        """Produce records and wait until all are acknowledged."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": linger_ms})
        failures: list[object] = []
        for record in records:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=-1 if record.partition is None else record.partition,
                timestamp=record.timestamp_ms or 0,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        producer.flush()
        if failures:
            raise KafkaException(failures[0])

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Where each partition of a topic ends."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "oracle"})
        ends = {}
        for partition in self.partitions(topic):
            _, until = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=TIMEOUT_S
            )
            ends[partition] = until
        consumer.close()
        return ends

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """What a group committed on each partition; a partition without a commit counts as 0."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        asked = [TopicPartition(topic, partition) for partition in self.partitions(topic)]
        found = consumer.committed(asked, timeout=TIMEOUT_S)
        consumer.close()
        return {one.partition: max(one.offset, 0) for one in found}
