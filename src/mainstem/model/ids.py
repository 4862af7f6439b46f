"""Distinct id types, so that a type checker finds the swapped argument.

A topic id is the raw 16 bytes of the wire format: a ``uuid.UUID`` costs a Python-level hash at
every look-up, and fetch looks topics up by id.
"""

from base64 import urlsafe_b64encode
from typing import NamedTuple, NewType

NodeId = NewType("NodeId", int)
TopicId = NewType("TopicId", bytes)
PartitionIndex = NewType("PartitionIndex", int)
RangeIndex = NewType("RangeIndex", int)
Epoch = NewType("Epoch", int)
Offset = NewType("Offset", int)
ProducerId = NewType("ProducerId", int)

NO_TOPIC_ID = TopicId(bytes(16))
NO_NODE = NodeId(-1)
"""No node: the writer of a stream that is offline, the leader before an election."""


class StreamId(NamedTuple):
    """One partition of one incarnation of a topic; a re-created topic has another id."""

    topic: TopicId
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{topic_id_text(self.topic)}-{self.partition}"


def topic_id_text(topic: TopicId) -> str:
    """The text form that Kafka tools print: url-safe base64 without padding."""
    return urlsafe_b64encode(topic).decode().rstrip("=")
