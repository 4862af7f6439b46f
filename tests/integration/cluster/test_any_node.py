"""HTTP takes and shows messages at any node, wherever their partitions are written."""

import json
from concurrent.futures import ThreadPoolExecutor
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.integration.cluster.test_fail_over import PARTITIONS, Writer, create, everything

from mainstem.testing.local_cluster import LocalCluster, MemberNode


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


def test_many_writers_write_one_stream_through_every_node(shared_cluster: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap})
    admin.create_topics([NewTopic("crowded", 1, 3)])["crowded"].result(20)

    def write(writer: int) -> None:
        node = list(shared_cluster.nodes.values())[writer % 3]
        url = f"http://{node.http}/v1/topics/crowded/messages"
        for number in range(20):
            body = json.dumps({"key": str(writer), "value": str(number)}).encode()
            request = Request(url, body, {"content-type": "application/json"})
            with urlopen(request, timeout=30) as answer:
                assert answer.status == 200

    with ThreadPoolExecutor(9) as pool:
        list(pool.map(write, range(9)))
    shown: dict[str, list[str]] = {}
    node = shared_cluster.nodes[1]
    with urlopen(f"http://{node.http}/v1/topics/crowded/messages?limit=500", timeout=30) as answer:
        for message in json.load(answer):
            shown.setdefault(message["key"], []).append(message["value"])
    # Each writer's messages are there once and in its order, whichever node took them.
    assert shown == {str(writer): [str(n) for n in range(20)] for writer in range(9)}


def peeked(node: MemberNode, topic: str, query: str) -> tuple[list[str], int]:
    """The values that a node shows of a partition, and where it says that it ends."""
    url = f"http://{node.http}/v1/topics/{topic}/messages?{query}"
    with urlopen(url, timeout=30) as answer:
        end = int(answer.headers["mainstem-end-offset"])
        return [message["value"] for message in json.load(answer)], end


@pytest.mark.parametrize("copies", [1, 3])
def test_messages_are_shown_at_any_node(shared_cluster: LocalCluster, copies: int) -> None:
    topic = f"shown-{copies}"
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, copies)])[topic].result(20)
    producer = Producer({"bootstrap.servers": shared_cluster.bootstrap})
    for number in range(300):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    for node in shared_cluster.nodes.values():
        for partition in range(PARTITIONS):
            expected = [str(number) for number in range(partition, 300, PARTITIONS)]
            place = f"partition={partition}"
            assert peeked(node, topic, place) == (expected, 100)
            assert peeked(node, topic, f"{place}&offset=40&limit=10")[0] == expected[40:50]
            assert peeked(node, topic, f"{place}&offset=-3") == (expected[-3:], 100)
            assert peeked(node, topic, f"{place}&from_timestamp=0&limit=2")[0] == expected[:2]
            assert peeked(node, topic, f"{place}&offset=latest") == ([], 100)


def test_messages_are_shown_when_their_writer_is_dead(cluster: LocalCluster) -> None:
    create(cluster, "kept")
    writer = Writer(cluster, "kept")
    writer.write(30)
    writer.settle()
    first, second, third = cluster.nodes.values()
    expected = [[str(n) for n in range(p, 30, PARTITIONS)] for p in range(PARTITIONS)]
    for partition in range(PARTITIONS):
        assert peeked(third, "kept", f"partition={partition}")[0] == expected[partition]
    first.kill9()
    for node in (second, third):
        for partition in range(PARTITIONS):
            assert peeked(node, "kept", f"partition={partition}")[0] == expected[partition]
