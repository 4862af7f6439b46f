"""What members of a consumer group ask of the coordinator and what it answers: plain values."""

from collections.abc import Callable

from msgspec import Struct

from mainstem.coordination.consumer.facts import NOTHING, Partitions

NOT_SPECIFIED = -1


TopicVisibility = Callable[[str], bool]


def sees_all_topics(topic: str) -> bool:
    """Of one who may see every topic."""
    del topic
    return True


class ConsumerHeartbeat(Struct, frozen=True, kw_only=True):
    """A member is alive. What it leaves out (None, -1) is as it said before.

    ``epoch`` 0 joins, -1 leaves, -2 leaves for a while (static members). Clients that make their
    own id (version 1 on) set ``makes_id``. ``may_see`` tells which topics an expression may find.
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
        """Whether it says everything: a member does so when it joins and after any failure."""
        has_subscription = self.topics is not None or self.pattern is not None
        is_complete = (
            self.rebalance_timeout_ms != NOT_SPECIFIED
            and has_subscription
            and self.owned is not None
        )
        return self.epoch == 0 or is_complete


class ConsumerAnswer(Struct, frozen=True):
    """The epoch of a member; its partitions where they changed or it asked for them."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None


class Reader(Struct, frozen=True):
    """Who asks for positions: a member in an epoch, or nobody in particular."""

    member_id: str | None = None
    epoch: int = NOT_SPECIFIED


NOBODY = Reader()


class DescribedConsumer(Struct, frozen=True):
    """One member as an administrator sees it."""

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
    """A consumer group in full."""

    group_id: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]
