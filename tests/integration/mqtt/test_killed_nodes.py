"""What MQTT clients rely on outlives a node that is stopped or killed."""

from collections.abc import Callable

import pytest
from tests.integration.mqtt.conftest import Dial
from tests.integration.mqtt.paho_client import PacketTypes, PahoClient, properties

from mainstem.testing.local_node import LocalNode

DAY = {"SessionExpiryInterval": 86_400}
KEPT = {"clean": False, "connect_properties": DAY}


def stopped(node: LocalNode) -> None:
    node.stop()
    node.start()


def killed(node: LocalNode) -> None:
    node.kill9()
    node.start()


Outage = Callable[[LocalNode], None]
EITHER = pytest.mark.parametrize("outage", [stopped, killed])


@EITHER
def test_sessions_their_messages_and_retained_ones_are_there_again(
    own_mqtt_node: LocalNode, dial: Dial, outage: Outage
) -> None:
    node = own_mqtt_node
    keeper = dial(node, "keeper", **KEPT)
    told = properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=7)
    keeper.subscribe("jobs/#", 2, properties=told)
    keeper.publish("state/a", b"on", retain=True)
    keeper.publish("state/b", b"off", retain=True)
    keeper.publish("state/b", b"", retain=True)
    keeper.publish("jobs/0", b"seen")
    assert keeper.payloads() == [b"seen"]
    keeper.disconnect()
    writer = dial(node)
    for number in range(100):
        writer.publish("jobs/1", b"%d" % number, qos=1 + number % 2)
    writer.vanish()

    outage(node)

    again = dial(node, "keeper", **KEPT)
    assert again.session_present
    got = again.take(100)
    assert sorted(int(each.payload) for each in got) == list(range(100))
    assert {each.properties.SubscriptionIdentifier[0] for each in got} == {7}
    again.subscribe("state/#")
    assert [(each.topic, each.payload) for each in again.take()] == [("state/a", b"on")]
    assert again.nothing()


def test_what_was_acknowledged_does_not_come_back_and_what_was_not_does(
    own_mqtt_node: LocalNode, dial: Dial
) -> None:
    node = own_mqtt_node
    worker = dial(node, "worker", manual_ack=True, **KEPT)
    worker.subscribe("jobs", 1)
    writer = dial(node)
    for number in range(10):
        writer.publish("jobs", b"%d" % number)
    worker.take(10)
    for message in worker.held[:7]:
        worker.client.ack(message.mid, 1)
    # The next answer comes after the acknowledgements have been read, and is committed after them.
    worker.subscribe("fence")
    worker.vanish()

    killed(node)

    again = dial(node, "worker", **KEPT)
    assert again.payloads(3) == [b"7", b"8", b"9"]
    assert again.nothing()


def test_a_kill_between_confirm_and_delivery_loses_and_doubles_nothing_of_qos_2(
    own_mqtt_node: LocalNode, dial: Dial
) -> None:
    node = own_mqtt_node
    reader = dial(node, "reader", **KEPT)
    reader.subscribe("exact", 2)
    writer = dial(node, "writer", **KEPT)
    sent = [b"%d" % number for number in range(300)]
    for payload in sent[:150]:
        writer.publish("exact", payload, 2)
    for payload in sent[150:]:
        writer.client.publish("exact", payload, 2)

    killed(node)
    for client in (reader, writer):
        reconnected(client, node)

    got = [each.payload for each in reader.take(300)]
    assert sorted(got, key=int) == sent
    assert reader.nothing(for_s=1.0)


def reconnected(client: PahoClient, node: LocalNode) -> None:
    """paho comes back by itself, but to the port that it knows."""
    _, _, port = str(node.announced["mqtt"]).rpartition(":")
    client.client._port = int(port)
    assert not client.event("connect").is_failure


def test_the_will_of_a_session_is_published_after_a_kill(
    own_mqtt_node: LocalNode, dial: Dial
) -> None:
    node = own_mqtt_node
    watcher = dial(node, "watcher", **KEPT)
    watcher.subscribe("wills")
    lost = dial(node, "lost", will={"topic": "wills", "payload": b"gone", "qos": 1}, **KEPT)
    for client in (watcher, lost):
        client.subscribe("fence")
        client.vanish()

    killed(node)

    assert dial(node, "watcher", **KEPT).payloads() == [b"gone"]


def test_a_group_keeps_what_nobody_has_finished(own_mqtt_node: LocalNode, dial: Dial) -> None:
    node = own_mqtt_node
    member = dial(node, "member", manual_ack=True, **KEPT)
    member.subscribe("$share/g/jobs")
    writer = dial(node)
    for number in range(5):
        writer.publish("jobs", b"%d" % number)
    member.take(5)
    for message in member.held[:2]:
        member.client.ack(message.mid, 1)
    member.subscribe("fence")
    member.vanish()

    killed(node)

    again = dial(node, "member", **KEPT)
    assert again.payloads(3) == [b"2", b"3", b"4"]
    assert again.nothing()
