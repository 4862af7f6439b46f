"""Streams that one node has to write together: those of queues, and those of MQTT sessions.

A node that serves queues needs all their streams. Their target nodes are the same in the same
order, so that one node writes them and the next one in that order takes all over; moving or
completing streams one by one would separate them. Pure.
"""

from typing import Final

from mainstem.model.ids import StreamId
from mainstem.model.metadata import Stream, Topic
from mainstem.model.topic_name import (
    MQTT_RETAINED_TOPIC,
    MQTT_SESSIONS_TOPIC,
    QUEUE_DATA_TOPIC,
    QUEUES_TOPIC,
)
from mainstem.placement.state.tables import CatalogueTables

_MQTT: Final = (MQTT_SESSIONS_TOPIC, MQTT_RETAINED_TOPIC)


def fixed(tables: CatalogueTables) -> frozenset[StreamId]:
    """Streams that are not moved for the sake of balance.

    Topics that queues share with others can have any name: a stream with the same target nodes as
    queues is treated as one of theirs.
    """
    queues = tables.topic(QUEUES_TOPIC)
    place = None if queues is None else queues.streams[0].wanted
    return frozenset(
        stream.id
        for topic in tables.topics()
        for stream in topic.streams
        if anchor(tables, topic) is not None or stream.wanted == place
    )


def anchor(tables: CatalogueTables, topic: Topic) -> Stream | None:
    """The stream that a topic's streams follow, if the topic is internal and co-located."""
    name = topic.name
    if name == QUEUES_TOPIC or name.partition(".")[0] == QUEUE_DATA_TOPIC:
        first = tables.topic(QUEUES_TOPIC)
    elif name in _MQTT:
        first = tables.topic(MQTT_SESSIONS_TOPIC)
    else:
        return None
    return (first or topic).streams[0]
