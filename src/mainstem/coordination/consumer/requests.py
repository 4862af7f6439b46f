"""Requests of consumer group members to the coordinator, and its answers: plain values."""

from collections.abc import Callable

from msgspec import Struct

from mainstem.coordination.consumer.facts import NOTHING, Partitions

NOT_SPECIFIED = -1


TopicVisibility = Callable[[str], bool]


def sees_all_topics(topic: str) -> bool:
    """Visibility of a requester that may see every topic."""
    del topic
    return True


class ConsumerHeartbeat(Struct, frozen=True, kw_only=True):
    """Heartbeat of a member. Omitted fields (None, -1) are unchanged.

    ``epoch`` 0 joins, -1 leaves, -2 leaves temporarily (static members). Clients that generate
    their own id (version 1 on) set ``makes_id``. ``may_see``: whether a pattern may match a topic.
    """

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_SPECIFIED
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    makes_id: bool = False
    may_see: TopicVisibility = sees_all_topics

    @property
    def is_full(self) -> bool:
        """Whether all fields are set: a member sets them when it joins and after any failure."""
        has_subscription = self.topics is not None or self.pattern is not None
        is_complete = (
            self.rebalance_timeout_ms != NOT_SPECIFIED
            and has_subscription
            and self.owned is not None
        )
        return self.epoch == 0 or is_complete


class ConsumerAnswer(Struct, frozen=True):
    """The epoch of a member; its partitions if they changed or were requested."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None


class OffsetReader(Struct, frozen=True):
    """Requester of committed offsets: a member in an epoch, or a client that is no member."""

    member_id: str | None = None
    epoch: int = NOT_SPECIFIED


NOBODY = OffsetReader()


class DescribedConsumer(Struct, frozen=True):
    """Description of one member."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assigned: Partitions = NOTHING
    target: Partitions = NOTHING
    is_classic: bool = False


class DescribedConsumerGroup(Struct, frozen=True):
    """Description of a consumer group."""

    group_id: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]
