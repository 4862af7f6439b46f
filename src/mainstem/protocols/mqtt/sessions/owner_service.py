"""Which node serves the MQTT sessions: the one that writes ``__mqtt_sessions``.

Also waits until this node is that one and can read the topics of subscriptions.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from mainstem.broker.api.broker import Broker, check_fresh
from mainstem.model.errors import MainstemError
from mainstem.model.topic_name import MQTT_SESSIONS_TOPIC
from mainstem.protocols.mqtt.streams.tail import Tail

PAUSE_S: Final = 0.02


def check_owned(broker: Broker) -> None:
    """Refuse if another node serves the sessions, or may do so by now.

    Raises:
        Unavailable: this node does not serve them, or not yet.
    """
    writer = broker.streams.partition(MQTT_SESSIONS_TOPIC, 0)
    if writer.closed is not None:
        raise writer.closed
    check_fresh(writer)


async def until_owned(broker: Broker) -> None:
    """Wait until a stream that was just created or taken over is open here.

    Raises:
        Unavailable: another node writes it.
    """
    while True:
        try:
            check_owned(broker)
        except MainstemError as error:
            topic = broker.topics.by_name(MQTT_SESSIONS_TOPIC)
            is_here = topic is not None and topic.streams[0].writer == broker.node.id
            if not is_here or not error.retriable:
                raise
            await asyncio.sleep(PAUSE_S)
        else:
            return


async def until_read(tail: Tail, topics: Iterable[str]) -> None:
    """Wait for new streams to open, and for other nodes to be reached."""
    while True:
        if tail.open(topics):
            return
        await asyncio.sleep(PAUSE_S)
