"""What is measured: how much of each load, what a figure is called, and its target."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Volume:
    """How much of each load; ``QUICK`` is for use while optimising."""

    batched: int
    large: int
    single: int
    lone: int
    latency: int
    synced: int
    through: int
    path: int
    transactions: int


FULL = Volume(
    batched=3_000_000,
    large=1_500,
    single=200_000,
    lone=10_000,
    latency=4_000,
    synced=20_000,
    through=10_000,
    path=1_500,
    transactions=300,
)
QUICK = Volume(
    batched=500_000,
    large=300,
    single=50_000,
    lone=3_000,
    latency=1_500,
    synced=5_000,
    through=1_000,
    path=1_000,
    transactions=60,
)
# Enough for a Java server to have compiled its hot paths and touched its heap once.
WARM = replace(QUICK, batched=2_000_000, large=1_200, single=100_000, path=1_500, transactions=200)


@dataclass(frozen=True)
class Figure:
    """One measurement: the value that the target is about, and figures beside it."""

    value: float
    beside: dict[str, float]


Figures = dict[str, Figure]


@dataclass(frozen=True)
class Goal:
    """What a figure is called, its unit and its target (None: reported only)."""

    title: str
    unit: str
    target: float | None
    at_least: bool = False
    # Which figure is held against the peer's: the value, one beside it, or none.
    compared: str | None = "value"
    # The word in the title of a side that says that it is the peer.
    peer: str = "kafka"


GOALS: dict[str, Goal] = {
    "produce_100b": Goal("produce 100 B in 60 KB batches", "ns CPU/message", 180),
    "consume_100b": Goal("consume 100 B in 60 KB batches", "ns CPU/message", 140),
    "produce_1mb": Goal("produce, 1 MB requests", "ms CPU/MB", 0.8),
    "fetch_1mb": Goal("fetch, 1 MB answers", "ms CPU/MB", 0.25),
    "fresh_pages": Goal("plain pwrite of fresh page cache", "ms CPU/MB", None, compared=None),
    "one_message_d64": Goal("one-message requests, 64 in flight", "µs CPU/request", 5),
    "one_message_d1": Goal("one-message requests, 1 in flight", "µs CPU/request", None),
    "latency": Goal("end to end, acks=1, p50", "µs", 250),
    "fsync_gain": Goal("rate at 64 in flight / rate at 1", "times", 30, at_least=True),
    "idempotent": Goal("idempotent produce / plain", "times", 1.15, compared="path_ns"),
    "guarded_produce": Goal(
        "produce with login, ACLs, quotas / plain", "times", 1.1, compared="path_ns"
    ),
    "guarded_consume": Goal(
        "consume with login, ACLs, quotas / plain", "times", 1.1, compared="path_ns"
    ),
    "tls_produce": Goal("produce over TLS / plain", "times", None, compared="path_ns"),
    "tls_consume": Goal("consume over TLS / plain", "times", None, compared="path_ns"),
    "transaction": Goal("transaction of 1,000 messages on 3 partitions", "ms CPU", 5),
    "ready": Goal("ready after process start", "s", 1),
    "rss_start": Goal("resident memory after start", "MB", 120),
    "idle": Goal("idle, share of one core", "%", 1),
    "rss_through": Goal("resident memory while data passes through", "MB", 300),
    "spark_read": Goal("a topic into Spark, 100 B", "rows/s/core", 1_200_000, at_least=True),
    "spark_write": Goal("Spark into a topic, 100 B", "rows/s/core", 500_000, at_least=True),
    "spark_steps": Goal(
        "topic, JSON parsed, masked, routed, written", "rows/s/core", 130_000, at_least=True
    ),
    "spark_floor": Goal("micro-batch of 100 rows, topic to topic", "ms", 60),
    "spark_snapshot": Goal(
        "PostgreSQL, rows that are there", "rows/s", 100_000, at_least=True, peer="debezium"
    ),
    "spark_changes": Goal(
        "PostgreSQL, changes of rows", "changes/s", 50_000, at_least=True, peer="debezium"
    ),
    "amqp_publish_100b": Goal(
        "AMQP publish and confirm, 100 B", "µs CPU/message", None, peer="quorum"
    ),
    "amqp_deliver_100b": Goal(
        "AMQP deliver and acknowledge, 100 B", "µs CPU/message", None, peer="classic"
    ),
    "amqp_publish_1kb": Goal(
        "AMQP publish and confirm, 1 KB", "µs CPU/message", None, peer="quorum"
    ),
    "amqp_deliver_1kb": Goal(
        "AMQP deliver and acknowledge, 1 KB", "µs CPU/message", None, peer="classic"
    ),
    "amqp_bound_1": Goal(
        "AMQP publish and confirm to a topic exchange with 1 queue, 100 B",
        "µs CPU/message",
        None,
        peer="classic",
    ),
    "amqp_bound_1000": Goal(
        "AMQP publish and confirm to a topic exchange with 1,000 queues, one matches, 100 B",
        "µs CPU/message",
        None,
        peer="classic",
    ),
    "amqp_replies": Goal(
        "10,000 AMQP reply queues declared, used once, deleted",
        "µs CPU/queue",
        None,
        peer="classic",
    ),
    "mqtt_qos0_100b": Goal(
        "MQTT QoS 0, publisher to one subscriber, 100 B", "µs CPU/message", None, peer="mosquitto"
    ),
    "mqtt_qos0_1kb": Goal(
        "MQTT QoS 0, publisher to one subscriber, 1 KB", "µs CPU/message", None, peer="mosquitto"
    ),
    "mqtt_qos1_100b": Goal(
        "MQTT QoS 1, publisher to one subscriber, 100 B", "µs CPU/message", None, peer="mosquitto"
    ),
    "mqtt_qos1_1kb": Goal(
        "MQTT QoS 1, publisher to one subscriber, 1 KB", "µs CPU/message", None, peer="mosquitto"
    ),
    "mqtt_idle_memory": Goal(
        "10,000 idle MQTT connections, resident memory", "MB", 400, peer="mosquitto"
    ),
    "native_publish_100b": Goal(
        "native publish and confirm, 100 B", "µs CPU/message", None, peer="nats"
    ),
    "native_deliver_100b": Goal(
        "native deliver and acknowledge, 100 B", "µs CPU/message", None, peer="nats"
    ),
    "native_publish_1kb": Goal(
        "native publish and confirm, 1 KB", "µs CPU/message", None, peer="nats"
    ),
    "native_deliver_1kb": Goal(
        "native deliver and acknowledge, 1 KB", "µs CPU/message", None, peer="nats"
    ),
    "spark_memory": Goal("one pipeline (JSON, mask, route), resident memory", "MB", 1_500),
    "spark_every_load_memory": Goal("Spark after every load above, resident memory", "MB", None),
}
