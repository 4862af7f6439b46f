"""Three nodes that are attacked: idle connections, parked frames, changed bytes between nodes."""

import asyncio
import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator, Sequence
from random import Random

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from tests.kit.attacks import (
    IdleConnections,
    ParkedFrames,
    descriptors,
    python_with_few_descriptors,
    resident_bytes,
)
from tests.kit.waiting import wait_until
from tests.unit.cluster.peers.relay import Relay, Way

from mainstem.client.admin import Admin
from mainstem.model.limits import MIB
from mainstem.testing.local_cluster import LocalCluster, MemberNode

LISTENERS = ("kafka", "amqp", "mqtt", "native", "http", "peers")
DESCRIPTORS = 1_000
ATTEMPTS = 5_000
PARKED_CONNECTIONS = 100
FRAME_BYTES = 8 * MIB
FRAMES_EACH = 2
GROWTH_BYTES_MAX = 100 * MIB
ENABLED = ("amqp.enabled=true", "mqtt.enabled=true", "native.enabled=true")
ARGUMENTS = [word for setting in ENABLED for word in ("--set", setting)]
PARTITIONS = 3
ATTACKED_S = 10.0

pytestmark = pytest.mark.timeout(240)


class Load:
    """An idempotent producer that writes numbers to one topic until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._delivered: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self._failed: list[object] = []
        self._is_stopped = False
        asyncio.run(self._create())
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        wait_until(lambda: all(self._delivered.values()))

    def close(self) -> None:
        """Stop without a check, after a failure."""
        self._is_stopped = True

    def wait_for_more(self) -> None:
        """Wait until records are acknowledged that are sent from now on."""
        before = self.count
        wait_until(lambda: self.count > before + 1_000, within_s=30)

    async def _create(self) -> None:
        async with Admin(self._bootstrap) as admin:
            await admin.create_topic("load", partitions=PARTITIONS, replication_factor=3)

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": 120_000,
                "linger.ms": 5,
            }
        )
        for number in itertools.count():
            if self._is_stopped:
                break
            partition = number % PARTITIONS
            producer.produce("load", b"%d" % number, partition=partition, callback=self._done)
            producer.poll(0)
            time.sleep(0.0005)
        assert producer.flush(120) == 0

    def _done(self, error: object, message: Message) -> None:
        if error is not None:
            self._failed.append(error)
        else:
            self._delivered[message.partition() or 0].append(int(message.value() or b""))

    @property
    def count(self) -> int:
        return sum(map(len, self._delivered.values()))

    def stop_and_check(self) -> None:
        """Every number is stored once, in order, and nothing else is."""
        self._is_stopped = True
        self._thread.join(150)
        assert not self._thread.is_alive()
        assert not self._failed
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "check"}
        consumer = Consumer({**settings, "enable.partition.eof": False})
        consumer.assign([TopicPartition("load", number, 0) for number in range(PARTITIONS)])
        stored: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        until = time.monotonic() + 60
        while sum(map(len, stored.values())) < self.count and time.monotonic() < until:
            for message in consumer.consume(1_000, timeout=1):
                assert message.error() is None
                stored[message.partition() or 0].append(int(message.value() or b""))
        assert not consumer.consume(1, timeout=1)
        consumer.close()
        assert stored == self._delivered


class FewDescriptors(LocalCluster):
    """Every node may have a thousand descriptors."""

    def member(self, number: int, join: Sequence[str]) -> MemberNode:
        node = super().member(number, join)
        node.python = python_with_few_descriptors(self.folder, DESCRIPTORS)
        return node


class Relays:
    """Runs one relay for each node, on a thread; all change frames while ``is_attacking``."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._relays: list[Relay] = []
        self._rng = Random(1)
        self.is_attacking = False
        self.attacks = 0
        self._thread.start()

    def put_before(self, node: MemberNode) -> str:
        """The host at which other nodes reach this one, through a relay."""
        host, _, port = node.peers.rpartition(":")
        relay = Relay((host, int(port)))
        relay.meddle = self._meddle
        self._relays.append(relay)
        shown = f"127.0.0.{10 + node.number}"
        asyncio.run_coroutine_threadsafe(relay.listen(shown, int(port)), self._loop).result(10)
        return shown

    def _meddle(self, _: Way, frame: bytes) -> list[bytes]:
        if not self.is_attacking or self._rng.random() > 0.005:
            return [frame]
        self.attacks += 1
        changed = bytearray(frame)
        changed[self._rng.randrange(4, len(frame))] ^= 1 << self._rng.randrange(8)
        noise = b"\0\0\0\x30" + self._rng.randbytes(48)
        return self._rng.choice([[bytes(changed)], [noise, frame], [frame, frame], []])

    @property
    def connections(self) -> int:
        return sum(relay.connections for relay in self._relays)

    def close(self) -> None:
        for relay in self._relays:
            asyncio.run_coroutine_threadsafe(relay.close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class RelayedCluster(LocalCluster):
    """Nodes that reach each other through relays."""

    def __init__(self, relays: Relays) -> None:
        super().__init__(arguments=ARGUMENTS)
        self._relays = relays

    def member(self, number: int, join: Sequence[str]) -> MemberNode:
        node = super().member(number, join)
        host = self._relays.put_before(node)
        node.arguments += ("--set", f"cluster.advertised_host={host}")
        return node


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with FewDescriptors(arguments=ARGUMENTS) as made:
        made.wait_for_three_voters()
        yield made
        stop_and_check(made)


def stop_and_check(cluster: LocalCluster) -> None:
    for node in cluster.nodes.values():
        assert "Traceback" not in node.log_text(), node.log_tail()
        assert node.stop() == 0


def test_idle_connections_and_parked_frames_leave_a_cluster_at_work(cluster: LocalCluster) -> None:
    nodes = list(cluster.nodes.values())
    addresses = [str(node.announced[each]) for each in LISTENERS for node in nodes]
    with contextlib.ExitStack() as stack:
        load = stack.enter_context(contextlib.closing(Load(cluster.bootstrap)))
        idle = stack.enter_context(contextlib.closing(IdleConnections(addresses)))
        idle.connect(ATTEMPTS)
        assert len(idle) < ATTEMPTS
        assert all(descriptors(node) < DESCRIPTORS for node in nodes)
        load.wait_for_more()
        idle.close()
        sizes = {node.number: resident_bytes(node) for node in nodes}
        body = os.urandom(FRAME_BYTES)
        each = -(-PARKED_CONNECTIONS // len(nodes))
        parked = [
            stack.enter_context(ParkedFrames(node.kafka, each, body, FRAMES_EACH)) for node in nodes
        ]
        for one in parked:
            one.wait_until_stuck()
            assert max(one.sent) < FRAME_BYTES
        for node in nodes:
            assert resident_bytes(node) - sizes[node.number] < GROWTH_BYTES_MAX
        load.wait_for_more()
        load.stop_and_check()


def test_bytes_that_are_changed_between_nodes_change_no_record() -> None:
    with contextlib.closing(Relays()) as relays, RelayedCluster(relays) as cluster:
        cluster.wait_for_three_voters()
        with contextlib.closing(Load(cluster.bootstrap)) as load:
            connections = relays.connections
            relays.is_attacking = True
            time.sleep(ATTACKED_S)
            relays.is_attacking = False
            load.wait_for_more()
            load.stop_and_check()
        assert relays.attacks > 10
        assert relays.connections > connections + 10  # an attack ends the connection
        stop_and_check(cluster)
