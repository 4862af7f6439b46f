"""Three nodes are replaced one by one by another release while clients write and read.

0.1 0.1 0.1 ─▶ now now now ─▶ 0.1 0.1 0.1 ─▶ now now now ─▶ the level is raised
"""

import json
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.upgrade.load import TOPIC, AmqpLoad, KafkaLoad, MqttLoad
from tests.upgrade.previous_release import CURRENT, previous_release

from mainstem.client.blocking_admin import BlockingAdmin
from mainstem.model.errors import MainstemError
from mainstem.model.features import MAINSTEM_VERSION, OWN_LEVELS
from mainstem.testing.local_cluster import LocalCluster, MemberNode
from mainstem.testing.server_process import ServerFailed

QUICK = (
    "--set", "groups.initial_rebalance_delay_ms=100",
    "--set", "groups.offsets_partitions=3",
    "--set", "amqp.enabled=true", "--set", "mqtt.enabled=true",
)  # fmt: skip
SETTLED_S = 90.0


class MixedCluster(LocalCluster):
    """Begins with the previous release on every node."""

    def member(self, number: int, join: Sequence[str]) -> MemberNode:
        """See ``LocalCluster``."""
        environment = {"PYTHONPATH": str(previous_release())}
        return MemberNode(number, self.folder, join, self.arguments, environment)

    def replace(self, number: int, release: Path) -> None:
        """Stop one node in good order and start it from other sources."""
        node = self.nodes[number]
        assert node.stop(timeout_s=90) == 0, node.log_tail()
        node.environment["PYTHONPATH"] = str(release)
        node.start(timeout_s=120)
        self.until_settled(number)

    def until_settled(self, asked: int) -> None:
        """Wait until every node is live, three vote, and every range is where it should be."""
        give_up = time.monotonic() + SETTLED_S
        while (found := self.overview(asked)) is None or not _is_settled(found):
            assert time.monotonic() < give_up, f"{found}\n{self.logs()}"
            time.sleep(0.1)

    def overview(self, asked: int) -> dict[str, Any] | None:
        """What a node says of the cluster; None while it says nothing."""
        address = f"http://{self.nodes[asked].http}/v1/cluster"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                found: dict[str, Any] = json.loads(answer.read())
        except OSError:
            return None
        return found


def _is_settled(found: dict[str, Any]) -> bool:
    unsettled = {"taking over", "offline", "incomplete", "moving"} & found["ranges"].keys()
    live = all(row["status"] == "live" for row in found["nodes"])
    return live and len(found["voters"]) == 3 and not unsettled


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


@pytest.mark.slow
@pytest.mark.timeout(600)
# A client whose node goes away while it connects leaves a socket to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.needs("previous_release")
def test_nodes_are_upgraded_and_taken_back_one_by_one_while_clients_work() -> None:
    old, new = previous_release(), CURRENT
    with MixedCluster(3, arguments=QUICK) as cluster:
        cluster.wait_for_three_voters(timeout_s=SETTLED_S)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for made in admin.create_topics([NewTopic(TOPIC, 3, 3)]).values():
            made.result(60)
        nodes = cluster.nodes
        kafka = KafkaLoad(cluster.bootstrap)
        amqp = AmqpLoad(lambda: [address(node.amqp) for node in nodes.values()])
        mqtt = MqttLoad(address(nodes[3].mqtt), address(nodes[2].mqtt))
        loads = (kafka, amqp, mqtt)
        for load in loads:
            load.start()

        for release in (new, old, new):
            for number in nodes:
                cluster.replace(number, release)
                for load in loads:
                    assert not load.errors, (release, number, load.errors, cluster.logs())
            assert level(cluster) in ({1} if release is new else {None})
        raise_level(cluster)

        for load in loads:
            load.finish(timeout_s=90)
        for load in loads:
            assert not load.errors, (load.errors, cluster.logs())
            assert len(load.confirmed) > 100, "it was hardly ever served"
            assert not load.missing(), (type(load).__name__, len(load.missing()), cluster.logs())
        stored = kafka.stored(timeout_s=60)
        assert {value for value, times in stored.items() if times > 1} == set(), "written twice"
        assert not kafka.confirmed - stored.keys()

        node = nodes[1]
        assert node.stop(timeout_s=90) == 0
        node.environment["PYTHONPATH"] = str(old)
        with pytest.raises(ServerFailed, match=r"identity is .* of another version"):
            node.start(timeout_s=120)


def level(cluster: MixedCluster) -> int | None:
    """The level of the cluster, as its nodes tell clients; None: they do not know of it."""
    with BlockingAdmin(cluster.bootstrap) as admin:
        found = {feature.name: feature.level for feature in admin.cluster.features()}
    return found.get(MAINSTEM_VERSION)


def raise_level(cluster: MixedCluster) -> None:
    """Raise the level; nodes announce what they read soon after the last one was replaced."""
    give_up = time.monotonic() + SETTLED_S
    while (refused := _refusal(cluster)) is not None:
        assert time.monotonic() < give_up, f"{refused}\n{cluster.logs()}"
        time.sleep(0.2)
    assert level(cluster) == OWN_LEVELS[1]


def _refusal(cluster: MixedCluster) -> MainstemError | None:
    try:
        with BlockingAdmin(cluster.bootstrap) as admin:
            admin.cluster.set_feature(MAINSTEM_VERSION, OWN_LEVELS[1])
    except MainstemError as refused:
        return refused
    return None
