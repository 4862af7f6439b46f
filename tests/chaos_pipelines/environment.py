"""Everything a run of kills needs: a node, databases, S3 servers, a receiver, a pipeline file.

One file holds every pipeline, so one Spark runs them all and one kill hits them all:

    numbers ─▶ s3 (each server) · parquet · delta · iceberg · postgres · webhook · another topic
    PostgreSQL ─▶ topic        MariaDB ─▶ topic
"""

import asyncio
import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Self

from tests.chaos_pipelines import sinks
from tests.chaos_pipelines.databases import Followed, Load, MariaDb, Postgres
from tests.chaos_pipelines.faults import Proxy, Receiver
from tests.chaos_pipelines.points import TOPIC, Plan
from tests.integration.cdc.postgres import PostgresServer
from tests.integration.cdc_mysql.mariadb import MariadbServer
from tests.integration.pipelines.connectors.s3_servers import PINS, S3Server, environment

from mainstem.client.admin import Admin
from mainstem.client.producer import Producer
from mainstem.testing.local_node import LocalNode

PARTITIONS = 2
SNAPSHOT_BURST = 300
JAVA_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # lives are short
S3_TROUBLE = 0.1
WEBHOOK_TROUBLE = 0.05


class Environment:
    """A context manager; ``folder`` holds state, points and log of the process under test."""

    def __init__(self, draw: random.Random) -> None:
        # Not below pytest's folder: sockets of Spark's workers want short names.
        self.folder = Path(tempfile.mkdtemp(prefix="mainstem-kills-", dir="/tmp"))
        self.file = self.folder / "pipeline.yaml"
        self.plan = Plan(self.folder / "points")
        self.put: list[bytes] = []
        self._draw = draw
        self._stack = ExitStack()
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        with self._stack:
            enter = self._stack.enter_context
            self.node = enter(LocalNode())
            self.postgres = enter(PostgresServer())
            self.receiver = enter(Receiver(self._other_draw()))
            self.proxies: list[Proxy] = []
            self.sinks = self._sinks()
            self.databases: list[Followed] = [
                Postgres(self.postgres),
                MariaDb(enter(MariadbServer())),
            ]
            for database in self.databases:
                database.prepare()
            self.loads = [Load(each, self._other_draw()) for each in self.databases]
            asyncio.run(self._make_topics())
            self._places = self._orders()
            self.write_file(changes_per_batch=SNAPSHOT_BURST)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    @property
    def pipelines(self) -> list[str]:
        return [
            *(f"sinks.{name}" for name in self.sinks),
            *(f"sources.{each.name}" for each in self.databases),
        ]

    def feed(self, count: int) -> None:
        """More records into the input."""
        numbers = range(len(self.put), len(self.put) + count)
        values = [sinks.value_of(number) for number in numbers]

        async def write() -> None:
            async with Producer(self.node.kafka) as producer:
                for value in values:
                    await producer.send(sinks.INPUT, value, key=sinks.key_of(value).encode())

        asyncio.run(write())
        self.put += values

    def write_file(self, *, changes_per_batch: int) -> None:
        """What the process is to run. JSON is YAML."""
        self.file.write_text(json.dumps(self._pipelines(changes_per_batch), indent=1))

    def trouble(self, *, on: bool) -> None:
        """Whether servers misbehave."""
        for proxy in self.proxies:
            proxy.trouble = S3_TROUBLE if on else 0.0
        self.receiver.trouble = WEBHOOK_TROUBLE if on else 0.0

    def draw_points(self) -> dict[str, str]:
        """A point for every pipeline; another one every time until all have been."""
        return {name: next(places) for name, places in self._places.items()}

    def batches(self, pipeline: str) -> int:
        """How many batches of a pipeline Spark has seen to their end, over all lives."""
        folder = self.folder / "state" / pipeline.replace(".", "/") / "checkpoint" / "commits"
        names = (path.name for path in folder.glob("[0-9]*"))
        return max((int(name) + 1 for name in names if name.isdigit()), default=0)

    def topic_of(self, database: Followed) -> str:
        return f"orders.{database.name}"

    def _other_draw(self) -> random.Random:
        """Threads draw for themselves, so that a seed says what each does."""
        return random.Random(self._draw.random())

    def _orders(self) -> dict[str, Iterator[str]]:
        """The points of each pipeline: that between its write and Spark's commit comes first."""
        points = {f"sinks.{name}": sink.points for name, sink in self.sinks.items()}
        points |= {f"sources.{each.name}": TOPIC for each in self.databases}
        return {
            name: cycle([last, *self._draw.sample(others, len(others))])
            for name, (*others, last) in points.items()
        }

    def _sinks(self) -> dict[str, sinks.SinkUnderTest]:
        found = {
            "copy": sinks.topic(self.node.kafka),
            "parquet": sinks.parquet(self.folder / "parquet"),
            "delta": sinks.delta(self.folder / "delta"),
            "iceberg": sinks.iceberg(self.folder / "iceberg"),
            "table": sinks.table(self.postgres),
            "webhook": sinks.webhook(self.receiver),
        }
        for name in sorted(PINS):
            installed = environment(name)
            assert installed is not None, f"{name} cannot be installed here"
            server = self._stack.enter_context(S3Server(name, installed))
            server.make_bucket(sinks.BUCKET)
            proxy = self._stack.enter_context(Proxy(server.port, self._other_draw()))
            self.proxies.append(proxy)
            found[name] = sinks.s3(proxy, server.url)
        return found

    async def _make_topics(self) -> None:
        async with Admin(self.node.kafka) as admin:
            for name in (sinks.INPUT, sinks.COPY, *map(self.topic_of, self.databases)):
                await admin.create_topic(name, partitions=PARTITIONS)

    def _pipelines(self, changes_per_batch: int) -> dict[str, object]:
        rate = {"events_per_second": 2 * changes_per_batch, "burst_size": changes_per_batch}
        temporary = self.folder / "tmp"
        flags = f"-Djava.io.tmpdir={temporary} {JAVA_FLAGS}"
        return {
            "version": "1.0",
            "broker": {"bootstrap_servers": [self.node.kafka]},
            "sources": {
                each.name: {
                    "connector": each.connector,
                    "topic": f"other.{each.name}",
                    "tables": [{"table": "orders", "topic": self.topic_of(each)}],
                    "rate_limit": rate,
                    "config": each.config(),
                }
                for each in self.databases
            },
            "sinks": {
                name: {"connector": sink.connector, "topics": [sinks.INPUT], "config": sink.config}
                for name, sink in self.sinks.items()
            },
            "settings": {
                "state_dir": str(self.folder / "state"),
                "health": {"enabled": False},
                "trigger_interval_ms": 500,
                "retry": {"max_retries": -1, "initial_backoff_ms": 200, "max_backoff_ms": 1_000},
                "spark": {
                    # More threads than cores: pipelines that stand still must not hold up others.
                    "master": "local[4]",
                    "driver_memory": "768m",
                    "conf": {
                        "spark.local.dir": str(temporary),
                        "spark.driver.extraJavaOptions": flags,
                    },
                },
            },
        }
