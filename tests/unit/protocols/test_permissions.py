"""Rights are asked of the broker once, until a rule changes; every refusal is asked anew."""

import pytest

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.protocols.amqp.errors import ChannelRefusal
from mainstem.protocols.amqp.permissions import amqp_permissions
from mainstem.protocols.permissions import ClientPermissions, PermissionCache
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.security.authorisation.authoriser import AllRights


class RightsOnTopics(AllRights):
    """Allows everything on some topics, and counts what it is asked."""

    version = 1

    def __init__(self, *topics: str) -> None:
        self.topics = topics
        self.asked: list[str] = []

    def need(self, operation: Operation, kind: ResourceType, name: str) -> None:
        assert kind is ResourceType.TOPIC
        self.asked.append(f"{operation.name} {name}")
        if name not in self.topics:
            raise InvalidRequest(ErrorCode.NOT_AUTHORIZED, "no", subject=name)


def test_what_is_allowed_is_asked_once_until_a_rule_changes() -> None:
    rights = RightsOnTopics("queue.a", "orders")
    permissions = ClientPermissions(rights, "/")
    for _ in range(3):
        permissions.publish("", "a")
        permissions.publish("orders", "any.key")
        permissions.queue(Operation.READ, "a")
    assert rights.asked == ["WRITE queue.a", "WRITE orders", "READ queue.a"]

    rights.version, rights.topics = 2, ()
    with pytest.raises(InvalidRequest):
        permissions.publish("", "a")


def test_every_refusal_is_asked_anew_because_each_is_audited() -> None:
    rights = RightsOnTopics()
    permissions = ClientPermissions(rights, "/")
    for _ in range(2):
        with pytest.raises(InvalidRequest):
            permissions.topic(Operation.READ, "t")
    assert rights.asked == ["READ t", "READ t"]


def test_a_queue_an_exchange_and_a_topic_of_one_name_are_not_mixed_up() -> None:
    rights = RightsOnTopics("queue.x")
    permissions = ClientPermissions(rights, "/")
    permissions.queue(Operation.WRITE, "x")
    for refused in (permissions.exchange, permissions.topic):
        with pytest.raises(InvalidRequest):
            refused(Operation.WRITE, "x")


def test_the_default_exchange_is_everybodys() -> None:
    rights = RightsOnTopics()
    ClientPermissions(rights, "/").exchange(Operation.READ, "")
    assert rights.asked == []


def test_an_amqp_refusal_names_the_queue_the_virtual_host_and_the_user() -> None:
    permissions = amqp_permissions(RightsOnTopics(), "/", "ann")
    with pytest.raises(ChannelRefusal) as refused:
        permissions.queue(Operation.READ, "a")
    assert refused.value.reply_text == (
        "ACCESS_REFUSED - read access to queue 'a' in vhost '/' refused for user 'ann'"
    )


def test_a_full_cache_starts_again() -> None:
    asked: list[int] = []

    def ask(key: int) -> bool:
        asked.append(key)
        return key % 2 == 0

    cache = PermissionCache(RightsOnTopics(), ask, 2)
    assert [cache.may(key) for key in (1, 2, 1, 2, 3, 1)] == [
        False,
        True,
        False,
        True,
        False,
        False,
    ]
    assert asked == [1, 2, 3, 1]
