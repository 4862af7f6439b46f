"""The topics of MQTT on a cluster, all placed alike, so that one node writes them if it can.

Created when the first client connects, with this node as preferred writer; an existing topic is not
moved.
"""

from typing import Final

from mainstem.broker.services.topics_service import (
    INTERNAL_CONFIGS,
    INTERNAL_REPLICAS,
    TopicsAdmin,
    new_topic_id,
)
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import NodeId
from mainstem.model.limits import KIB
from mainstem.model.topic_name import MQTT_RETAINED_TOPIC, MQTT_SESSIONS_TOPIC
from mainstem.placement.changes.commands import CreateTopic
from mainstem.placement.service import PlacementService
from mainstem.protocols.mqtt.settings import MqttSettings

HEAD_BYTES_MAX: Final = 256 * KIB  # for the batch and record headers around a message


class MqttTopics:
    """Creates the topics of MQTT, co-located on one writer if possible.

    Args:
        placement: creates topics.
        topics: the existing topics.
        settings: which topics MQTT needs, and how large its messages may be.
        partitions: how many a topic has by default.
        replicas: how many copies of a topic there are by default.
    """

    def __init__(
        self,
        placement: PlacementService,
        topics: TopicsAdmin,
        settings: MqttSettings,
        *,
        partitions: int,
        replicas: int,
    ) -> None:
        self._placement = placement
        self._topics = topics
        self.settings = settings
        self._partitions = partitions
        self._replicas = replicas

    async def ensure(self) -> None:
        """Create the topics if needed, with a message size limit that fits MQTT's."""
        for name in (MQTT_SESSIONS_TOPIC, MQTT_RETAINED_TOPIC):
            nodes = self._placed()
            await self._make(name, 1, nodes, INTERNAL_CONFIGS[name], internal=True)
        largest = str(self.settings.packet_bytes_max + HEAD_BYTES_MAX)
        for name in self.settings.topics:
            nodes = self._placed()[: self._replicas]
            await self._make(name, self._partitions, nodes, {"max.message.bytes": largest})

    def _placed(self) -> tuple[NodeId, ...]:
        known = self._topics.by_name(MQTT_SESSIONS_TOPIC)
        if known is not None:
            return known.streams[0].wanted
        here = self._topics.node.id
        others = [node.id for node in self._topics.nodes() if node.id != here]
        return (here, *others)[:INTERNAL_REPLICAS]

    async def _make(
        self,
        name: str,
        partitions: int,
        nodes: tuple[NodeId, ...],
        configs: dict[str, str],
        *,
        internal: bool = False,
    ) -> None:
        if self._topics.by_name(name) is not None:
            return
        command = CreateTopic(
            new_topic_id(),
            name,
            partitions,
            len(nodes),
            dict(configs),
            internal=internal,
            assignments=(nodes,) * partitions,
        )
        try:
            await self._placement.submit(command)
        except InvalidRequest as error:
            if error.code is not ErrorCode.TOPIC_EXISTS:
                raise
