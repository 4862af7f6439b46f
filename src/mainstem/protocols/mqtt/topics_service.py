"""The topics of the log that MQTT writes and reads."""

from typing import Final

from mainstem.broker.topics_api import Topics
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.limits import KIB
from mainstem.protocols.mqtt.settings import MqttSettings

HEAD_BYTES_MAX: Final = 256 * KIB  # of what surrounds a message in the log


class LogTopics:
    """Made when the first client comes."""

    def __init__(self, topics: Topics, settings: MqttSettings) -> None:
        self._topics = topics
        self._settings = settings

    async def ensure(self) -> None:
        """Let them exist; whatever MQTT takes, they take."""
        largest = str(self._settings.packet_bytes_max + HEAD_BYTES_MAX)
        for name in self._settings.topics:
            if self._topics.by_name(name) is not None:
                continue
            try:
                await self._topics.create(
                    name,
                    partitions=-1,
                    replication_factor=-1,
                    configs={"max.message.bytes": largest},
                )
            except MainstemError as error:
                if error.code is not ErrorCode.TOPIC_EXISTS:
                    raise

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 without such a topic."""
        known = self._topics.by_name(topic)
        return 0 if known is None else len(known.streams)
