"""The servers that are compared, and what each promises when it acknowledges a record."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
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


class Guarded(Server, Protocol):
    """A running server process with a listener for logins and one with TLS."""

    ca: Path

    def address(self, kind: str) -> str:
        """Where the listener of that kind is."""


@dataclass(frozen=True)
class Side:
    """One server with one durability."""

    name: str
    durability: str
    server: Server
    settings: dict[str, str]
    # The acknowledgement that stands for this durability.
    acks: int = 1
    # Which listener the load dials if not the first, and what the bare loader needs for it.
    listener: str = ""
    bare: tuple[str, ...] = ()
    # The same by other ways: with a login, with TLS.
    ways: Mapping[str, "Side"] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """What the load dials."""
        return self.listener or self.server.kafka

    @property
    def title(self) -> str:
        """Name and durability, as every row shows them."""
        return f"{self.name} ({self.durability})"

    def create(
        self, topic: str, *, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic with this side's durability."""
        admin = AdminClient({"bootstrap.servers": self.server.kafka, "log_level": 2})
        new = NewTopic(topic, partitions, config=self.settings | dict(settings or {}))
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


def new_topic(side: Side, *, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
    """A topic that nobody has used; its name."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    side.create(topic, partitions=partitions, settings=settings)
    return topic


def with_ways(side: Side, server: Guarded, user: str, password: str) -> Side:
    """The side with the ways through a guarded server of the same product."""
    ways = {
        kind: replace(side, server=server, listener=server.address(kind), bare=bare)
        for kind, bare in (
            ("SASL_PLAINTEXT", (f"login={user}:{password}",)),
            ("SSL", (f"ca={server.ca}",)),
        )
    }
    return replace(side, ways=ways)


SIDES: dict[str, Callable[[Server], Side]] = {
    "written": written,
    "synced": synced,
    "kafka": kafka,
}
