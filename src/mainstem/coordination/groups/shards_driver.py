"""The shards of consumer groups: their bounds, what is swept, what generations wait for."""

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
        """A shard without any facts yet."""
        shard = GroupShard(self._settings, self._topics, self._new_id, self._sharing)
        return LiveShard(shard, GROUP_CODEC, self._topic.open_stream(partition), partition)

    def check_capacity(self, live: LiveGroupShard, key: str) -> None:
        """Refuse a new group when there are too many."""
        if live.shard.has(key):
            return
        count = sum(each.shard.group_count for each in self)
        if count >= GROUPS_MAX:
            raise Unavailable(
                ErrorCode.COORDINATOR_UNAVAILABLE,
                f"there are {count} groups, no more are taken",
                subject=key,
            )

    def sweep(self, live: LiveGroupShard) -> None:
        """Forget what has expired, and positions in topics that no longer exist."""
        if not live.is_ready:
            return
        for topic in live.shard.offsets.topics():
            if not self._topic.partition_count(topic):
                self.store_or_warn(live, live.shard.offsets.delete_topic(topic))
        self.store_or_warn(live, live.shard.shares.gone())
        self.store_or_warn(live, live.shard.expire(self._clock.wall_ms()))

    def topic_deleted(self, topic: str) -> None:
        """Forget the positions in a topic that is gone."""
        for live in self:
            if live.is_ready:
                self.store_or_warn(live, live.shard.offsets.delete_topic(topic))
                self.store_or_warn(live, live.shard.shares.gone())
                live.shard.consumers.topic_changed(topic)
                live.shard.shares.topic_changed(topic)

    def topic_changed(self, topic: str) -> None:
        """A topic came or grew: groups that read it share its partitions anew."""
        for live in self:
            live.shard.consumers.topic_changed(topic)
            live.shard.shares.topic_changed(topic)


def store_generation(
    live: LiveGroupShard, saved: GroupSaved, then: AfterStored, now: Instant
) -> GroupEffects:
    """Store a fact that something waits for; what follows from it, or from its refusal."""
    try:
        for _ in live.append([saved], now.wall_ms):
            pass  # replayed by ``stored``, together with what waits for it
    except MainstemError as error:
        _log.warning("generation of group %s cannot be stored: %s", saved.group_id, error)
        return live.shard.groups.refused(then, as_coordinator_error(error), now)
    return live.shard.groups.stored(then, saved, now)
