"""Calls that only librdkafka still has, or has too: settings replaced as a whole, elections."""

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from mainstem.testing.local_node import LocalNode

WAIT_S = 20.0


def test_confluent_replaces_all_that_is_set_on_a_topic(shared_node: LocalNode) -> None:
    admin = AdminClient({"bootstrap.servers": shared_node.kafka})
    topic = NewTopic("replaced", 1, 1, config={"retention.ms": "1", "segment.ms": "2"})
    admin.create_topics([topic])["replaced"].result(WAIT_S)
    wanted = ConfigResource("topic", "replaced", set_config={"segment.ms": "3"})
    with pytest.warns(DeprecationWarning, match="deprecated"):
        futures = admin.alter_configs([wanted])
    futures[wanted].result(WAIT_S)
    asked = ConfigResource("topic", "replaced")
    described = admin.describe_configs([asked])[asked].result(WAIT_S)
    assert described["segment.ms"].value == "3"
    assert described["retention.ms"].value == "604800000", (
        "what is left out is as it was by default"
    )


def test_confluent_hears_that_no_election_is_needed(shared_node: LocalNode) -> None:
    admin = AdminClient({"bootstrap.servers": shared_node.kafka})
    admin.create_topics([NewTopic("elected", 2, 1)])["elected"].result(WAIT_S)
    asked = [TopicPartition("elected", partition) for partition in (0, 1, 2)]
    outcome = admin.elect_leaders(ElectionType.PREFERRED, asked).result(WAIT_S)
    names = {part.partition: error.name() for part, error in outcome.items()}
    assert names == {
        0: "ELECTION_NOT_NEEDED",
        1: "ELECTION_NOT_NEEDED",
        2: "UNKNOWN_TOPIC_OR_PART",
    }
