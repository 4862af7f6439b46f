"""The small parts of MQTT: answers in order, wills, retained messages, routes, rights."""

import pytest

from mainstem.model.errors import Corrupt, ErrorCode, Unavailable
from mainstem.model.message import Message
from mainstem.protocols.mqtt.connection.acknowledgements import Answers
from mainstem.protocols.mqtt.connection.permissions import MqttPermissions
from mainstem.protocols.mqtt.convert import Incoming, topic_of
from mainstem.protocols.mqtt.errors import ack_reason_of, reason_of
from mainstem.protocols.mqtt.retained_tree import RetainedTree
from mainstem.protocols.mqtt.sessions.image import image_of
from mainstem.protocols.mqtt.sessions.wills import Wills
from mainstem.protocols.mqtt.settings import MqttSettings, TopicRoute
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.wire.mqtt.kinds import Kind
from mainstem.wire.mqtt.packets import Ack, Will
from mainstem.wire.mqtt.reasons import Reason


def test_acknowledgements_go_out_in_the_order_of_the_messages() -> None:
    sent: list[Ack] = []
    answers = Answers(sent.append)
    slots = [answers.reserve() for _ in range(3)]

    answers.fill(slots[1], Ack(Kind.PUBACK, 2))
    assert sent == []
    answers.fill(slots[0], Ack(Kind.PUBACK, 1))

    assert [ack.packet_id for ack in sent] == [1, 2]
    assert len(answers) == 1


def test_a_will_is_due_once_unless_its_client_came_back() -> None:
    wills = Wills()
    for name in ("a", "b"):
        wills.put(name, Will("t", name.encode()), 10)
    wills.cancel("a")

    assert list(wills.due(9)) == []
    assert [name for name, _ in wills.due(10)] == ["b"]
    assert list(wills.due(10)) == []


def test_the_longest_prefix_names_the_topic_of_the_log() -> None:
    settings = MqttSettings(routes=(TopicRoute("a/", "one"), TopicRoute("a/b/", "two")))

    found = [settings.topic_for(name) for name in ("a/x", "a/b/x", "a", "c")]

    assert found == ["one", "two", "mqtt", "mqtt"]
    assert settings.topics == ("mqtt", "one", "two")


def test_retained_messages_have_limits_of_number_and_bytes() -> None:
    tree = RetainedTree(messages_max=1, bytes_max=2_000)
    assert tree.has_space("a", 100)
    tree.keep(Incoming(Message(b"a", bytes(100)), "a"))

    assert not tree.has_space("b", 1)
    assert tree.has_space("a", 1_000)
    assert not tree.has_space("a", 2_000)


def test_an_expired_retained_message_is_not_found() -> None:
    tree = RetainedTree(messages_max=9, bytes_max=9_000)
    tree.keep(Incoming(Message(b"a", b"x", (("expires-at", b"50"),)), "a"))

    assert [each.topic for each in tree.match("#", 49)] == ["a"]
    assert list(tree.match("#", 50)) == []


@pytest.mark.parametrize("key", [None, b"", b"a/#", b"\xff", b"a\0b", bytes(70_000)])
def test_a_key_that_is_no_topic_gives_the_topic_of_the_log(key: bytes | None) -> None:
    assert topic_of(Message(key, b"x"), "log") == "log"


def test_an_image_of_other_bytes_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        image_of(b"\x93")


def test_refusals_have_reasons() -> None:
    full = Unavailable(ErrorCode.LIMIT_REACHED, "full")
    away = Unavailable(ErrorCode.NOT_WRITER, "elsewhere")

    assert (reason_of(full), ack_reason_of(full)) == (Reason.QUOTA_EXCEEDED, Reason.QUOTA_EXCEEDED)
    assert reason_of(away) == Reason.USE_ANOTHER_SERVER
    assert ack_reason_of(away) == Reason.IMPLEMENTATION_SPECIFIC


class FewRights:
    """Allows one name, and counts how often it is asked."""

    version = 1

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = 0

    def may(self, _operation: Operation, _kind: ResourceType, name: str) -> bool:
        self.asked += 1
        return name == self.name

    def need(self, operation: Operation, kind: ResourceType, name: str) -> None:
        raise NotImplementedError

    def may_somewhere(self, operation: Operation, kind: ResourceType) -> bool:
        raise NotImplementedError

    def operations(self, kind: ResourceType, name: str) -> int:
        raise NotImplementedError


def test_rights_on_the_topic_of_the_log_cover_all_its_mqtt_topics() -> None:
    permissions = MqttPermissions(MqttSettings())
    permissions.grant(FewRights("mqtt"))

    assert permissions.may_write("anything/at/all")
    assert permissions.may_subscribe("#")


def test_decisions_are_remembered_until_a_rule_changes() -> None:
    rights = FewRights("mqtt/a")
    permissions = MqttPermissions(MqttSettings())
    permissions.grant(rights)

    assert [permissions.may_read(topic) for topic in ("a", "a", "b")] == [True, True, False]
    assert rights.asked == 4

    rights.name, rights.version = "mqtt/b", 2
    assert [permissions.may_read(topic) for topic in ("a", "b")] == [False, True]
