"""HTTP takes messages at any node, wherever their partitions are written."""

import json
from urllib.request import Request, urlopen

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.integration.cluster.test_fail_over import PARTITIONS, everything

from mainstem.testing.local_cluster import LocalCluster


def test_messages_are_taken_at_any_node(shared_cluster: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap})
    admin.create_topics([NewTopic("posted", PARTITIONS, 3)])["posted"].result(20)
    for node in shared_cluster.nodes.values():
        for partition in range(PARTITIONS):
            value = str(node.number * 10 + partition)
            body = json.dumps({"value": value}).encode()
            url = f"http://{node.http}/v1/topics/posted/messages?partition={partition}"
            headers = {"content-type": "application/json"}
            with urlopen(Request(url, body, headers), timeout=30) as answer:
                assert answer.status == 200
                assert json.load(answer)["partition"] == partition
    wanted = [n * 10 + p for n in shared_cluster.nodes for p in range(PARTITIONS)]
    assert sorted(everything(shared_cluster.bootstrap, "posted")) == wanted
