"""The servers that are compared, and what each promises when it acknowledges a record."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic


class Server(Protocol):
    """A running server process."""

    kafka: str
    ready_s: float

    @property
    def pid(self) -> int:
        """The process that is measured."""


@dataclass(frozen=True)
class Side:
    """One server with one durability."""

    name: str
    durability: str
    server: Server
    settings: dict[str, str]
    # The acknowledgement that stands for this durability.
    acks: int = 1

    @property
    def title(self) -> str:
        """Name and durability, as every row shows them."""
        return f"{self.name} ({self.durability})"

    def create(self, topic: str, **settings: str) -> None:
        """Create a topic of one partition with this side's durability."""
        admin = AdminClient({"bootstrap.servers": self.server.kafka, "log_level": 2})
        new = NewTopic(topic, 1, config=self.settings | settings)
        for future in admin.create_topics([new]).values():
            future.result(30)

    def delete(self, topic: str) -> None:
        """Delete a topic, so that its pages and files do not burden the next round."""
        admin = AdminClient({"bootstrap.servers": self.server.kafka, "log_level": 2})
        for future in admin.delete_topics([topic]).values():
            future.result(30)


def written(server: Server) -> Side:
    """A node that acknowledges what the page cache holds, as Kafka does."""
    return Side("mainstem", "page cache", server, {"flush.policy": "written"})


def synced(server: Server) -> Side:
    """A node that acknowledges what the disk holds: its default."""
    return Side("mainstem", "fsync", server, {"flush.policy": "fsync"}, acks=-1)


def kafka(server: Server) -> Side:
    """Apache Kafka in its default configuration."""
    return Side("kafka", "page cache", server, {})


SIDES: dict[str, Callable[[Server], Side]] = {
    "written": written,
    "synced": synced,
    "kafka": kafka,
}
