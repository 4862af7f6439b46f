"""``mainstemd --shards 2``: two brokers of one machine, kept running by one process."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.testing.ports import free_port

FREE = [
    word
    for path in ("kafka", "http", "amqp", "mqtt", "native")
    for word in ("--set", f"{path}.port=0")
]


class Machine:
    """A supervisor and what it announced."""

    def __init__(self, folder: Path, log: IO[bytes]) -> None:
        self.http_port = free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mainstem.node", "--shards", "2", "--preset", "local",
             "--data-dir", str(folder), "--peer-port", "0", *FREE,
             "--set", f"http.shared_port={self.http_port}"],
            stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(b"READY "), line
        self.ready: dict[str, Any] = json.loads(line.removeprefix(b"READY "))

    @property
    def bootstrap(self) -> str:
        return ",".join(str(shard["kafka"]) for shard in self.ready["shards"])


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with (tmp_path / "log").open("wb") as log:
        made = Machine(tmp_path / "data", log)
        yield made
        if made.process.poll() is None:
            os.killpg(made.process.pid, signal.SIGKILL)
        made.process.wait()
        assert made.process.stdout is not None
        made.process.stdout.close()


def leaders(admin: AdminClient) -> set[int]:
    found = admin.list_topics("t", timeout=10).topics["t"].partitions.values()
    return {part.leader for part in found}


def kafka_port_at(port: int) -> int:
    """Who answers on a port, asked on a connection of its own."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/broker", timeout=10) as answer:
        return int(json.loads(answer.read())["port"])


def test_shards_share_the_work_come_back_and_stop_together(machine: Machine) -> None:
    admin = AdminClient({"bootstrap.servers": machine.bootstrap})
    admin.create_topics([NewTopic("t", 4, 2)])["t"].result(30)
    assert leaders(admin) == {1, 2}
    answered = {kafka_port_at(machine.http_port) for _ in range(60)}
    assert answered == {int(str(s["kafka"]).split(":")[1]) for s in machine.ready["shards"]}
    producer = Producer({"bootstrap.servers": machine.bootstrap, "message.timeout.ms": 60_000})
    stored: list[Any] = []
    for number in range(400):
        producer.produce(
            "t", b"%d" % number, partition=number % 4, on_delivery=lambda e, m: stored.append(e)
        )
        if number == 200:
            producer.flush(60)
            os.kill(machine.ready["shards"][1]["pid"], signal.SIGKILL)
    assert producer.flush(90) == 0
    assert stored == [None] * 400
    give_up = time.monotonic() + 60
    while leaders(admin) != {1, 2}:
        assert time.monotonic() < give_up, "the shard came back"
        time.sleep(0.2)
    consumer = Consumer({"bootstrap.servers": machine.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("t", number, 0) for number in range(4)])
    seen: set[bytes | None] = set()
    while len(seen) < 400 and time.monotonic() < give_up + 30:
        seen |= {m.value() for m in consumer.consume(500, 0.5) if not m.error()}
    consumer.close()
    assert seen == {b"%d" % number for number in range(400)}
    machine.process.terminate()
    assert machine.process.wait(60) == 0
