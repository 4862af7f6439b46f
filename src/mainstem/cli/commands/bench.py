"""``mainstem bench``: throughput and latency of this or any other broker, through our client.

Latency is measured from the moment a message was due, so it includes stalls of the broker
(see ``bench_schedule``). The figures include this client, which is Python: to compare brokers by
their own cost, use a C client and measure the server's CPU time.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from mainstem.cli.commands.bench_schedule import NANOSECONDS, SendSchedule
from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.access import ConnectionOptions
from mainstem.cli.login.admin_session import with_admin
from mainstem.cli.output.histogram import Histogram
from mainstem.cli.output.render import Output, show_one
from mainstem.cli.parameters.shared import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    OutputForm,
    TimeoutSeconds,
)

if TYPE_CHECKING:
    from mainstem.client.admin import Admin
    from mainstem.client.cluster import Cluster
    from mainstem.client.consumer import Consumer
    from mainstem.client.producer import Delivery, Producer

app = typer.Typer(help="Measure throughput and latency.", no_args_is_help=True)

PERCENTS = (50, 90, 99, 99.9)
OUTSTANDING_MAX = 100_000
SPIN_NS = 1_500_000  # timers of the event loop are no finer than a millisecond
POLL_MS = 500
STAMP = Struct(">qq")  # run, due time

TopicName = Annotated[str, typer.Option("--topic", "-t", help="Topic; created when missing.")]
Count = Annotated[int, typer.Option("--count", "-n", min=1, help="Number of records.")]
Size = Annotated[int, typer.Option("--size", "-s", min=1, help="Bytes of each value.")]
Rate = Annotated[
    float | None,
    typer.Option("--rate", "-r", min=0.1, help="Records per second; default: as many as possible."),
]
Acks = Annotated[str, typer.Option(help="Acknowledgements to wait for: 0, 1 or all.")]
Codec = Annotated[str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.")]
Partitions = Annotated[
    int, typer.Option("--partitions", "-p", min=1, help="Partitions, when the topic is created.")
]


class Load(NamedTuple):
    """The messages that a benchmark sends."""

    topic: str
    records: int
    size: int
    rate: float | None


class SendOptions(NamedTuple):
    """How the messages are sent."""

    bootstrap: ConnectionOptions
    acks: str
    compression: str
    linger_ms: float


@app.command("produce")
def produce(
    topic: TopicName = "bench",
    count: Count = 100_000,
    size: Size = 100,
    rate: Rate = None,
    acks: Acks = "all",
    compression: Codec = "none",
    linger_ms: Annotated[float, typer.Option(min=0, help="Wait for fuller batches.")] = 5.0,
    partitions: Partitions = 1,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Send records and measure the rate, and the time until each is acknowledged."""
    durability = _prepare(bootstrap, timeout, topic, partitions)
    load = Load(topic, count, size, rate)
    way = SendOptions(bootstrap, acks, compression, linger_ms)
    seconds, latency = asyncio.run(_produce(load, way))
    result = _throughput("produce", count, size, seconds)
    result |= {"acks": acks, "durability": durability, "rate_wanted": rate}
    show_one(result | _latencies(latency), output)


@app.command("consume")
def consume(
    topic: TopicName = "bench",
    count: Count = 100_000,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Read records from the beginning and measure the rate."""
    received, received_bytes, seconds = asyncio.run(_consume(bootstrap, topic, count, timeout))
    if not received:
        raise UsageFailure("the topic is empty", subject=topic, remedy="mainstem bench produce")
    show_one(_throughput("consume", received, received_bytes / received, seconds), output)


@app.command("latency")
def latency(
    topic: TopicName = "bench-latency",
    count: Count = 10_000,
    size: Size = 100,
    rate: Annotated[
        float, typer.Option("--rate", "-r", min=0.1, help="Records per second.")
    ] = 1_000.0,
    acks: Acks = "1",
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Send at a fixed rate and measure the time until each record is read again."""
    durability = _prepare(bootstrap, timeout, topic, 1)
    load = Load(topic, count, max(size, STAMP.size), rate)
    way = SendOptions(bootstrap, acks, "none", 0.0)
    seconds, found = asyncio.run(_latency(load, way, timeout))
    result = _throughput("latency", count, load.size, seconds)
    result |= {"acks": acks, "durability": durability, "rate_wanted": rate}
    show_one(result | _latencies(found), output)


def _prepare(bootstrap: ConnectionOptions, timeout_s: float, topic: str, partitions: int) -> str:
    """Create the topic if it is missing; returns its ``flush.policy``."""

    async def act(admin: "Admin") -> str:
        if topic not in await admin.list_topics():
            await admin.create_topic(topic, partitions=partitions)
        settings = {entry.name: entry.value for entry in await admin.topic_configs(topic)}
        # Brokers without this setting acknowledge once the operating system has the record.
        return settings.get("flush.policy") or "written"

    return with_admin(bootstrap, timeout_s, act)


async def _produce(load: Load, way: SendOptions) -> tuple[float, Histogram]:
    histogram = Histogram()
    payload = random.Random(load.size).randbytes(load.size)  # noqa: S311 - only incompressible
    async with way.bootstrap.cluster() as cluster, _producer(way, cluster) as producer:
        await producer.partitions_of(load.topic)
        deliveries: asyncio.Queue[tuple[Delivery, int] | None] = asyncio.Queue(OUTSTANDING_MAX)
        started = time.perf_counter_ns()

        async def send(due_ns: int) -> None:
            await deliveries.put((await producer.send(load.topic, payload), due_ns))

        async def settle() -> None:
            while (waiting := await deliveries.get()) is not None:
                delivery, due_ns = waiting
                await delivery
                histogram.add(time.perf_counter_ns() - due_ns)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(settle())
            await _at_pace(load, started, send)
            await producer.flush()
            await deliveries.put(None)
        seconds = (time.perf_counter_ns() - started) / NANOSECONDS
    return seconds, histogram


async def _consume(
    bootstrap: ConnectionOptions, topic: str, count: int, timeout_s: float
) -> tuple[int, int, float]:
    from mainstem.client.consumer import Consumer, ConsumerSettings
    from mainstem.client.consuming.offset_query import EARLIEST

    received = received_bytes = 0
    settings = ConsumerSettings(reset="earliest", poll_records_max=10_000)
    async with (
        bootstrap.cluster() as cluster,
        Consumer(cluster, settings=settings) as consumer,
    ):
        await _assign_all(consumer, cluster, topic)
        await consumer.seek_to_time(EARLIEST)
        started = received_at = time.perf_counter()
        while received < count and time.perf_counter() - received_at < timeout_s:
            records = await consumer.poll(POLL_MS)
            if records:
                received_at = time.perf_counter()
                received += len(records)
                received_bytes += sum(len(record.value or b"") for record in records)
            elif await _is_at_end(consumer):
                break
    return received, received_bytes, received_at - started


async def _latency(load: Load, way: SendOptions, timeout_s: float) -> tuple[float, Histogram]:
    from mainstem.client.consumer import Consumer, ConsumerSettings
    from mainstem.client.consuming.offset_query import LATEST

    histogram = Histogram()
    run = time.time_ns()  # records of an earlier run in the same topic do not count
    filler = bytes(load.size - STAMP.size)
    settings = ConsumerSettings(reset="latest", fetch_wait_ms=1_000)
    # Two clusters: produce requests must not wait for fetches on the same connection.
    async with (
        way.bootstrap.cluster() as reading,
        way.bootstrap.cluster() as writing,
        Consumer(reading, settings=settings) as consumer,
        _producer(way, writing) as producer,
    ):
        await _assign_all(consumer, reading, load.topic)
        await consumer.seek_to_time(LATEST)
        await consumer.poll(1)
        await producer.partitions_of(load.topic)
        started = time.perf_counter_ns()

        async def send(due_ns: int) -> None:
            await producer.send(load.topic, STAMP.pack(run, due_ns) + filler)

        async def receive() -> None:
            received_at = time.perf_counter()
            while histogram.count < load.records and time.perf_counter() - received_at < timeout_s:
                records = await consumer.poll(POLL_MS)
                now_ns = time.perf_counter_ns()
                for record in records:
                    received_at = time.perf_counter()
                    if record.value and len(record.value) >= STAMP.size:
                        its_run, due_ns = STAMP.unpack_from(record.value)
                        if its_run == run:
                            histogram.add(now_ns - due_ns)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(receive())
            await _at_pace(load, started, send)
        seconds = (time.perf_counter_ns() - started) / NANOSECONDS
    return seconds, histogram


async def _at_pace(load: Load, started_ns: int, send: Callable[[int], Awaitable[None]]) -> None:
    """Call ``send`` for each record when it is due, with the moment at which it was due."""
    pace = SendSchedule(started_ns, load.rate)
    for index in range(load.records):
        while wait_ns := pace.wait_ns(index, time.perf_counter_ns()):  # noqa: ASYNC110 - a clock
            await asyncio.sleep((wait_ns - SPIN_NS) / NANOSECONDS if wait_ns > SPIN_NS else 0)
        await send(pace.due_ns(index, time.perf_counter_ns()))


def _producer(way: SendOptions, cluster: "Cluster") -> "Producer":
    from mainstem.client.producer import Producer, ProducerSettings

    settings = ProducerSettings(acks=way.acks, compression=way.compression, linger_ms=way.linger_ms)
    return Producer(cluster, settings)


async def _assign_all(consumer: "Consumer", cluster: "Cluster", topic: str) -> None:
    from mainstem.client.admin import Admin
    from mainstem.client.values import TopicPartition

    info = (await Admin(cluster).describe_topics([topic]))[topic]
    consumer.assign([TopicPartition(topic, index) for index in info.partitions])


async def _is_at_end(consumer: "Consumer") -> bool:
    from mainstem.client.consuming.offset_query import LATEST

    ends = await consumer.offsets(dict.fromkeys(consumer.assignment, LATEST))
    positions = {place: await consumer.position(place) for place in ends}
    return all(positions[place] >= end.offset for place, end in ends.items())


def _throughput(workload: str, count: int, size: float, seconds: float) -> dict[str, object]:
    return {
        "workload": workload,
        "records": count,
        "value_bytes": round(size),
        "seconds": round(seconds, 3),
        "records_per_second": round(count / seconds) if seconds else 0,
        "mb_per_second": round(count * size / seconds / 1e6, 2) if seconds else 0.0,
    }


def _latencies(histogram: Histogram) -> dict[str, object]:
    found = {
        f"latency_ms_{name}": round(value / 1e6, 3)
        for name, value in histogram.percentiles(PERCENTS).items()
    }
    return {**found, "latency_ms_max": round(histogram.largest / 1e6, 3)}
