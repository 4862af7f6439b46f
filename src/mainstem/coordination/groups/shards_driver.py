"""The shards of groups on this node: limits, expiry, and storing of generations."""

import logging
from collections.abc import Callable

from mainstem.coordination.classic.rebalance import AfterStored, GroupEffects
from mainstem.coordination.consumer.topics import TopicSource
from mainstem.coordination.groups.facts import GroupSaved
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.groups.shard import GroupShard
from mainstem.coordination.offsets.pending import GROUP_CODEC, GroupFact
from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.coordination.shards.persistence_driver import LiveShard, as_coordinator_error
from mainstem.coordination.shards.registry_driver import InternalTopic, ShardRegistry
from mainstem.coordination.shards.state_machine import Instant
from mainstem.coordination.share.configs import ShareConfigs
from mainstem.coordination.share.settings import ShareSettings
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.limits import GROUPS_MAX

_log = logging.getLogger(__name__)

LiveGroupShard = LiveShard[GroupShard, GroupFact]


class GroupShards(ShardRegistry[GroupShard, GroupFact]):
    """All groups of this node."""

    topic_name = OFFSETS_TOPIC

    def __init__(
        self,
        settings: GroupSettings,
        topic: InternalTopic,
        topics: TopicSource,
        clock: Clock,
        new_id: Callable[[], str],
        sharing: ShareSettings,
    ) -> None:
        super().__init__(
            topic,
            clock,
            partitions=settings.offsets_partitions,
            sweep_ms=settings.offsets_retention_check_ms,
        )
        self._settings = settings
        self._topics = topics
        self._new_id = new_id
        self._sharing = sharing
        self.share_configs = ShareConfigs(sharing, topics.group_texts)

    def make(self, partition: int) -> LiveGroupShard:
        """Make an empty shard."""
        shard = GroupShard(self._settings, self._topics, self._new_id, self._sharing)
        return LiveShard(shard, GROUP_CODEC, self._topic.open_stream(partition), partition)

    def check_capacity(self, live: LiveGroupShard, key: str) -> None:
        """Refuse a new group beyond the limit."""
        if live.shard.has(key):
            return
        count = sum(each.shard.group_count for each in self)
        if count >= GROUPS_MAX:
            raise Unavailable(
                ErrorCode.COORDINATOR_UNAVAILABLE,
                f"the limit of {GROUPS_MAX} groups is reached",
                subject=key,
            )

    def sweep(self, live: LiveGroupShard) -> None:
        """Delete expired offsets and groups, and offsets of deleted topics."""
        if not live.is_ready:
            return
        for topic in live.shard.offsets.topics():
            if not self._topic.partition_count(topic):
                self.store_or_warn(live, live.shard.offsets.delete_topic(topic))
        self.store_or_warn(live, live.shard.shares.gone())
        self.store_or_warn(live, live.shard.expire(self._clock.wall_ms()))

    def topic_deleted(self, topic: str) -> None:
        """Delete the committed offsets of a deleted topic."""
        for live in self:
            if live.is_ready:
                self.store_or_warn(live, live.shard.offsets.delete_topic(topic))
                self.store_or_warn(live, live.shard.shares.gone())
                live.shard.consumers.topic_changed(topic)
                live.shard.shares.topic_changed(topic)

    def topic_changed(self, topic: str) -> None:
        """Let groups that read a created or extended topic compute a new assignment."""
        for live in self:
            live.shard.consumers.topic_changed(topic)
            live.shard.shares.topic_changed(topic)


def store_generation(
    live: LiveGroupShard, saved: GroupSaved, then: AfterStored, now: Instant
) -> GroupEffects:
    """Store a generation; returns the effects of success or of failure."""
    try:
        for _ in live.append([saved], now.wall_ms):
            pass  # replayed by ``stored``, together with what waits for it
    except MainstemError as error:
        _log.warning("the generation of group %s could not be stored: %s", saved.group_id, error)
        return live.shard.groups.refused(then, as_coordinator_error(error), now)
    return live.shard.groups.stored(then, saved, now)
