"""Messages of a virtual host's queues are in a topic that Kafka clients cannot write or empty."""

from collections.abc import Callable, Iterator

import pytest
from tests.integration.amqp.conftest import WITH_AMQP, dial, drained
from tests.integration.bad_input.transaction_wire import OLD, Wire
from tests.integration.bad_input.wire import batch_of

from mainstem.client.blocking_admin import BlockingAdmin
from mainstem.client.values import TopicPartition
from mainstem.model.errors import MainstemError
from mainstem.testing.local_node import LocalNode

TOPIC = "__queue_data.team"
BAD_TOPIC = 17


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with LocalNode(arguments=WITH_AMQP) as made:
        with dial(made, virtual_host="team") as link:
            link.channel().queue_declare("orders")
            link.channel().basic_publish("", "orders", b"mine")
        yield made


def test_producers_and_transactions_do_not_write_it(node: LocalNode) -> None:
    with Wire(node.kafka, "forger", OLD) as wire:
        assert wire.raw.produce(TOPIC, bytes(batch_of(b"forged")))[0] == BAD_TOPIC
        _, who = wire.init()
        assert wire.add(who, (TOPIC, 0)) == [BAD_TOPIC]
    _the_message_is_there(node)


@pytest.mark.parametrize(
    "change",
    [
        lambda admin: admin.delete_records({TopicPartition(TOPIC, 0): -1}),
        lambda admin: admin.delete_topics([TOPIC]),
        lambda admin: admin.create_partitions(TOPIC, 9),
        lambda admin: admin.alter_topic_configs(TOPIC, changed={"retention.ms": "1"}),
        lambda admin: admin.alter_topic_configs(TOPIC, changed={"cleanup.policy": "compact"}),
        lambda admin: admin.create_topic("__queue_data.other", partitions=1),
    ],
    ids=["empty", "delete", "grow", "retain less", "compact", "take the next name"],
)
def test_administrators_do_not_empty_or_take_it(
    node: LocalNode, change: Callable[[BlockingAdmin], object]
) -> None:
    with BlockingAdmin(node.kafka) as admin, pytest.raises(MainstemError, match="__queue_data"):
        change(admin)
    _the_message_is_there(node)


def _the_message_is_there(node: LocalNode) -> None:
    with dial(node, virtual_host="team") as link:
        channel = link.channel()
        [(_, _, body)] = drained(channel, "orders", 1)
        assert body == b"mine"
        channel.basic_publish("", "orders", b"mine")
