"""What users of MQTT do every day, through paho, on a real node."""

from typing import Any

import pytest
from paho.mqtt.reasoncodes import ReasonCode
from tests.integration.mqtt.conftest import Dial
from tests.integration.mqtt.paho_client import MQTTv5, MQTTv311, PacketTypes, properties

from mainstem.testing.local_node import LocalNode

DAY = {"SessionExpiryInterval": 86_400}
BOTH = pytest.mark.parametrize("version", [MQTTv311, MQTTv5], ids=["3.1.1", "5"])


@BOTH
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_arrives_with_the_smaller_qos(
    mqtt_node: LocalNode, dial: Dial, topic: str, version: int, published: int, granted: int
) -> None:
    client = dial(mqtt_node, version=version)
    assert client.subscribe(topic, granted) == [granted]

    client.publish(topic, b"\x00\xffbinary", published)

    [got] = client.take()
    assert got[:5] == (topic, b"\x00\xffbinary", min(published, granted), False, False)


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_many_messages_arrive_once_and_in_order(
    mqtt_node: LocalNode, dial: Dial, topic: str, version: int, qos: int
) -> None:
    client = dial(mqtt_node, version=version)
    client.subscribe(topic, 2)
    sent = [str(number).encode() for number in range(1_000)]

    for payload in sent:
        client.client.publish(topic, payload, qos=qos)

    assert client.payloads(len(sent)) == sent
    assert client.nothing()


@pytest.mark.parametrize(
    ("text", "fits"),
    [("+", False), ("{}/+/c", True), ("{}/#", True), ("{}/b/c", True), ("{}/+", False)],
)
def test_wildcards_find_what_they_fit(
    mqtt_node: LocalNode, dial: Dial, topic: str, text: str, *, fits: bool
) -> None:
    client = dial(mqtt_node)
    client.subscribe(text.format(topic))

    client.publish(f"{topic}/b/c", b"x")

    assert client.nothing() is not fits


def test_everything_that_a_message_of_version_5_says_arrives(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    client = dial(mqtt_node)
    client.subscribe(topic)
    told = {
        "PayloadFormatIndicator": 1,
        "MessageExpiryInterval": 60,
        "ContentType": "text/plain",
        "ResponseTopic": "answers/here",
        "CorrelationData": b"\x00\x01",
        "UserProperty": [("a", "1"), ("a", "2"), ("mqtt.qos", "9"), ("ä", "ö")],
    }

    client.publish(topic, b"hello", told=told)

    [got] = client.take()
    assert got.properties.PayloadFormatIndicator == 1
    assert 58 <= got.properties.MessageExpiryInterval <= 60
    assert got.properties.ContentType == "text/plain"
    assert got.properties.ResponseTopic == "answers/here"
    assert got.properties.CorrelationData == b"\x00\x01"
    assert got.properties.UserProperty == told["UserProperty"]


def test_a_retained_message_waits_for_subscribers_and_an_empty_one_takes_it_away(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    first = dial(mqtt_node)
    first.publish(topic, b"old", retain=True)
    first.publish(topic, b"new", retain=True)

    first.subscribe(f"{topic}/#")
    assert [got[:4] for got in first.take()] == [(topic, b"new", 1, True)]

    first.publish(topic, b"", retain=True)
    first.take()
    late = dial(mqtt_node)
    late.subscribe(topic)
    assert late.nothing()


@pytest.mark.parametrize(("handling", "times"), [(0, 2), (1, 1), (2, 0)])
def test_retained_messages_are_sent_as_the_subscription_asks(
    mqtt_node: LocalNode, dial: Dial, topic: str, handling: int, times: int
) -> None:
    client = dial(mqtt_node)
    client.publish(topic, b"kept", retain=True)

    client.subscribe(topic, retainHandling=handling)
    client.subscribe(topic, retainHandling=handling)

    assert len(client.take(times)) == times
    assert client.nothing()


def test_a_subscription_may_keep_the_retain_flag_and_leave_out_ones_own_messages(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    one, other = dial(mqtt_node), dial(mqtt_node)
    one.subscribe(topic, noLocal=True)
    other.subscribe(topic, retainAsPublished=True)

    one.publish(topic, b"x", retain=True)

    assert other.take()[0].retain is True
    assert one.nothing()


def test_identifiers_of_all_subscriptions_that_fit_come_with_one_message(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    client = dial(mqtt_node)
    for number, text in ((3, topic), (200_000, f"{topic}/#")):
        told = properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=number)
        client.subscribe(text, properties=told)

    client.publish(topic, b"x")

    [got] = client.take()
    assert sorted(got.properties.SubscriptionIdentifier) == [3, 200_000]
    assert client.nothing()


def test_what_is_unsubscribed_comes_no_more(mqtt_node: LocalNode, dial: Dial, topic: str) -> None:
    client = dial(mqtt_node)
    client.subscribe(topic)

    assert client.unsubscribe(topic) == [0]
    assert client.unsubscribe(topic) == [0x11]

    client.publish(topic, b"x")
    assert client.nothing()


def test_a_filter_that_is_none_is_refused_by_itself(mqtt_node: LocalNode, dial: Dial) -> None:
    client = dial(mqtt_node)
    client.client.subscribe([("fine", 1)])
    assert client.event("subscribe") == [1]

    assert client.subscribe("$share/nothing") == [0x8F]


@BOTH
def test_messages_wait_for_a_session_that_is_kept(
    mqtt_node: LocalNode, dial: Dial, topic: str, version: int
) -> None:
    name = f"keeper-{topic}-{version}"
    options: dict[str, Any] = {"version": version, "clean": False}
    if version == MQTTv5:
        options["connect_properties"] = DAY
    first = dial(mqtt_node, name, **options)
    assert not first.session_present
    first.subscribe(topic, 2)
    first.disconnect()
    writer = dial(mqtt_node)
    for qos in (0, 1, 2):
        writer.publish(topic, b"%d" % qos, qos)

    again = dial(mqtt_node, name, **options)

    assert again.session_present
    assert again.payloads(2) == [b"1", b"2"]
    assert again.nothing()


def test_a_clean_start_forgets_the_session(mqtt_node: LocalNode, dial: Dial, topic: str) -> None:
    first = dial(mqtt_node, f"c-{topic}", clean=False, connect_properties=DAY)
    first.subscribe(topic)
    first.disconnect()

    again = dial(mqtt_node, f"c-{topic}", clean=True)

    assert not again.session_present
    again.publish(topic, b"x")
    assert again.nothing()


def test_a_session_ends_when_its_time_is_over(mqtt_node: LocalNode, dial: Dial, topic: str) -> None:
    brief = {"SessionExpiryInterval": 1}
    first = dial(mqtt_node, f"e-{topic}", clean=False, connect_properties=brief)
    first.subscribe(topic)
    first.disconnect()
    first.nothing(for_s=2.5)

    again = dial(mqtt_node, f"e-{topic}", clean=False, connect_properties=brief)

    assert not again.session_present


def test_what_was_not_acknowledged_is_sent_again_with_its_number(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    options = {"clean": False, "connect_properties": DAY, "manual_ack": True}
    first = dial(mqtt_node, f"u-{topic}", **options)
    first.subscribe(topic)
    first.publish(topic, b"x")
    [got] = first.take()
    number = first.held[-1].mid
    first.vanish()

    again = dial(mqtt_node, f"u-{topic}", **options)

    [repeated] = again.take()
    assert not got.dup
    assert (repeated.payload, repeated.dup, again.held[-1].mid) == (b"x", True, number)


def test_no_more_is_in_flight_than_the_receiver_allows(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    client = dial(mqtt_node, connect_properties={"ReceiveMaximum": 2}, manual_ack=True)
    client.subscribe(topic)
    writer = dial(mqtt_node)
    for number in range(5):
        writer.publish(topic, b"%d" % number)

    assert client.payloads(2) == [b"0", b"1"]
    assert client.nothing()

    client.client.ack(client.held[0].mid, 1)
    assert client.payloads() == [b"2"]


def test_another_connection_takes_a_session_over(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    first = dial(mqtt_node, f"t-{topic}", reconnect_on_failure=False)

    dial(mqtt_node, f"t-{topic}")

    assert first.event("disconnect") == ReasonCode(PacketTypes.DISCONNECT, identifier=0x8E)


@BOTH
def test_a_will_is_published_when_a_client_vanishes(
    mqtt_node: LocalNode, dial: Dial, topic: str, version: int
) -> None:
    watcher = dial(mqtt_node)
    watcher.subscribe(topic)
    will = {"topic": topic, "payload": b"gone", "qos": 1}

    dial(mqtt_node, version=version, will=will).vanish()
    dial(mqtt_node, version=version, will=will).disconnect()

    assert watcher.payloads() == [b"gone"]
    assert watcher.nothing()


def test_a_client_may_say_goodbye_and_leave_its_will(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    watcher = dial(mqtt_node)
    watcher.subscribe(topic)
    will = {"topic": topic, "payload": b"gone", "qos": 1}

    dial(mqtt_node, will=will).disconnect(reason=ReasonCode(PacketTypes.DISCONNECT, identifier=4))

    assert watcher.payloads() == [b"gone"]


def test_a_will_with_a_delay_is_not_published_if_the_client_comes_back(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    watcher = dial(mqtt_node)
    watcher.subscribe(topic)
    delay = properties(PacketTypes.WILLMESSAGE, WillDelayInterval=1)
    will = {"topic": topic, "payload": b"gone", "qos": 1, "properties": delay}
    options = {"clean": False, "connect_properties": DAY, "will": will}

    dial(mqtt_node, f"w-{topic}", **options).vanish()
    dial(mqtt_node, f"w-{topic}", **options)
    assert watcher.nothing(for_s=2.5)

    dial(mqtt_node, f"v-{topic}", **options).vanish()
    assert watcher.payloads() == [b"gone"]


def test_members_of_a_group_share_the_messages(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    members = [dial(mqtt_node) for _ in range(3)]
    for member in members:
        member.subscribe(f"$share/workers/{topic}/#")
    everybody = dial(mqtt_node)
    everybody.subscribe(f"{topic}/#")
    writer = dial(mqtt_node)

    sent = [b"%d" % number for number in range(30)]
    for payload in sent:
        writer.publish(f"{topic}/x", payload)

    assert everybody.payloads(30) == sent
    shares = [member.payloads(10) for member in members]
    assert sorted((each for share in shares for each in share), key=int) == sent


def test_what_a_member_of_a_group_did_not_finish_another_gets(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    shared = f"$share/g/{topic}"
    first = dial(mqtt_node, manual_ack=True)
    first.subscribe(shared)
    writer = dial(mqtt_node)
    writer.publish(topic, b"job")
    assert first.payloads() == [b"job"]
    second = dial(mqtt_node)
    second.subscribe(shared)

    first.vanish()

    assert second.payloads() == [b"job"]


def test_a_message_that_has_expired_is_not_sent(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    keeper = dial(mqtt_node, f"x-{topic}", clean=False, connect_properties=DAY)
    keeper.subscribe(topic)
    keeper.disconnect()
    writer = dial(mqtt_node)
    writer.publish(topic, b"brief", told={"MessageExpiryInterval": 1})
    writer.publish(topic, b"lasting")
    writer.nothing(for_s=1.2)

    again = dial(mqtt_node, f"x-{topic}", clean=False, connect_properties=DAY)

    assert again.payloads() == [b"lasting"]


def test_aliases_stand_for_topics_both_ways(mqtt_node: LocalNode, dial: Dial, topic: str) -> None:
    client = dial(mqtt_node, connect_properties={"TopicAliasMaximum": 5})
    assert client.connack.TopicAliasMaximum > 0
    client.subscribe(topic)

    client.publish(topic, b"1", told={"TopicAlias": 7})
    client.publish("", b"2", told={"TopicAlias": 7})

    first, second = client.take(2)
    assert (first.topic, first.payload) == (topic, b"1")
    # paho leaves it to its user to look an alias up.
    assert (second.topic, second.payload) == ("", b"2")
    assert second.properties.TopicAlias == first.properties.TopicAlias


def test_a_client_without_a_name_is_given_one(mqtt_node: LocalNode, dial: Dial) -> None:
    client = dial(mqtt_node)
    assert client.connack.AssignedClientIdentifier.startswith("auto-")


def test_a_silent_client_is_taken_for_gone(mqtt_node: LocalNode, dial: Dial, topic: str) -> None:
    watcher = dial(mqtt_node)
    watcher.subscribe(topic)
    will = {"topic": topic, "payload": b"silent", "qos": 1}
    silent = dial(mqtt_node, will=will, keep_alive_s=1)
    silent.client.loop_stop()

    assert watcher.payloads() == [b"silent"]


def test_a_message_larger_than_the_client_takes_is_not_sent(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    small = dial(mqtt_node, connect_properties={"MaximumPacketSize": 200})
    small.subscribe(topic)
    writer = dial(mqtt_node)

    writer.publish(topic, bytes(300))
    writer.publish(topic, b"fits")

    assert small.payloads() == [b"fits"]
