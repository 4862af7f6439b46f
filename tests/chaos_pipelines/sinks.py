"""Every sink of the house fed from one topic, and what each must hold in the end: the input, once.

A sink is right when what it holds is what was put into the topic, no more and no less, compared by
a hash over all records; and in order per key where the sink has an order.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from deltalake import DeltaTable
from pyarrow import parquet as pq
from pyiceberg.catalog import load_catalog
from tests.chaos_pipelines import points
from tests.chaos_pipelines.faults import Proxy, Receiver
from tests.integration.cdc.postgres import PostgresServer
from tests.integration.pipelines.stage import records

from mainstem.pipelines.object_store.bucket import Bucket, BucketSettings

INPUT = "numbers"
COPY = "numbers-copied"
KEYS = 40
BUCKET = "lake"
CREDENTIALS: dict[str, Any] = {
    "access_key_id": "testing-key",
    "secret_access_key": "testing-secret",
}
TABLE_SCHEMA = "n bigint, key string, text string"


class SinkUnderTest(NamedTuple):
    """A sink: its settings, where it can be made to stand still, and how to read what it holds.

    ``values`` gives the values it holds; where ``is_ordered``, in the order they were written.
    """

    connector: str
    config: dict[str, object]
    points: Sequence[str]
    values: Callable[[], Iterable[bytes]]
    is_ordered: bool = False


def value_of(number: int) -> bytes:
    """The value of a record of the input; it names its key."""
    text = hashlib.sha256(b"%d" % number).hexdigest()[:24]
    value = {"n": number, "key": f"key {number % KEYS}", "text": text}
    return json.dumps(value, separators=(",", ":")).encode()


def key_of(value: bytes) -> str:
    return str(json.loads(value)["key"])


def topic(bootstrap: str) -> SinkUnderTest:
    config: dict[str, object] = {
        "bootstrap_servers": [bootstrap],
        "topic": COPY,
        "delivery": "exactly-once",
    }
    return SinkUnderTest(
        "kafka",
        config,
        points.TOPIC,
        lambda: [each.value or b"" for each in records(bootstrap, COPY)],
        is_ordered=True,
    )


def parquet(folder: Path) -> SinkUnderTest:
    def values() -> Iterable[bytes]:
        for path in sorted(folder.glob("part-*")):
            yield from pq.read_table(path)["value"].to_pylist()

    config: dict[str, object] = {"path": str(folder)}
    return SinkUnderTest("parquet", config, points.FILES, values, is_ordered=True)


def s3(proxy: Proxy, direct: str) -> SinkUnderTest:
    """The sink comes through the proxy; the test looks past it."""
    bucket = Bucket(BucketSettings(bucket=BUCKET, prefix="lake", endpoint=direct, **CREDENTIALS))

    def values() -> Iterable[bytes]:
        names = sorted(each.path for each in bucket.files("") if not each.path.startswith("_"))
        for path in names:
            with bucket.reader(path) as file:
                yield from pq.read_table(file)["value"].to_pylist()

    reached = {"endpoint": proxy.url, "retries": 3, "timeout_ms": 10_000, **CREDENTIALS}
    config: dict[str, object] = {"bucket": BUCKET, "prefix": "lake", **reached}
    return SinkUnderTest("s3", config, points.FILES, values, is_ordered=True)


def delta(folder: Path) -> SinkUnderTest:
    def values() -> Iterable[bytes]:
        found: list[bytes] = DeltaTable(str(folder)).to_pyarrow_table()["value"].to_pylist()
        return found

    return SinkUnderTest("delta", {"path": str(folder)}, points.DELTA, values)


def iceberg(folder: Path) -> SinkUnderTest:
    (folder / "warehouse").mkdir(parents=True)
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }

    def values() -> Iterable[bytes]:
        table = load_catalog("default", **catalog).load_table("shop.numbers")
        found: list[bytes] = table.scan().to_arrow()["value"].to_pylist()
        return found

    config: dict[str, object] = {"table": "shop.numbers", "catalog": catalog}
    return SinkUnderTest("iceberg", config, points.ICEBERG, values)


def table(server: PostgresServer) -> SinkUnderTest:
    """Rows without a key of their own: the database would let any of them in twice."""
    server.run("CREATE TABLE numbers (n bigint, key text, text text)")

    def values() -> Iterable[bytes]:
        for n, key, text in server.run("SELECT n, key, text FROM numbers"):
            yield json.dumps({"n": n, "key": key, "text": text}, separators=(",", ":")).encode()

    config: dict[str, object] = {
        "port": server.port,
        "database": "postgres",
        "user": "postgres",
        "table": "numbers",
        "schema": TABLE_SCHEMA,
        "mode": "insert",
    }
    return SinkUnderTest("postgres", config, points.TABLE, values)


def webhook(receiver: Receiver) -> SinkUnderTest:
    config: dict[str, object] = {
        "url": receiver.url,
        "timeout_ms": 2_000,
        "initial_backoff_ms": 20,
        "max_backoff_ms": 200,
        "concurrency": 4,
    }
    return SinkUnderTest(
        "http-webhook",
        config,
        points.WEBHOOK,
        lambda: [body for _, body in receiver.taken.values()],
        is_ordered=True,
    )


def anomalies_of(name: str, sink: SinkUnderTest, put: Sequence[bytes]) -> list[str]:
    """How what a sink holds differs from what was put in."""
    held: list[Any] = list(sink.values())
    found: list[str] = []
    if _digest(held) != _digest(put):
        missing, doubled = Counter(put) - Counter(held), Counter(held) - Counter(put)
        found.append(
            f"{missing.total()} missing, {doubled.total()} too many, "
            f"such as {[*missing][:2]} and {[*doubled][:2]}"
        )
    elif sink.is_ordered and _by_key(held) != _by_key(put):
        found.append("records of one key are out of order")
    return [f"{name}: {each}" for each in found]


def _digest(values: Iterable[bytes]) -> str:
    """A hash over all values, whatever their order."""
    return hashlib.sha256(b"\n".join(sorted(values))).hexdigest()


def _by_key(values: Iterable[bytes]) -> dict[str, list[bytes]]:
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for value in values:
        found[key_of(value)].append(value)
    return found
