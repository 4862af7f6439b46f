"""The shards of consumer groups: their bounds, what is swept, what generations wait for."""

import logging
from collections.abc import Callable

from mainstem.coordination.consumer_group_topics import TopicSource
from mainstem.coordination.group_shard import GroupShard
from mainstem.coordination.partitions import OFFSETS_TOPIC
from mainstem.coordination.pending_offsets import GROUP_CODEC, GroupFact
from mainstem.coordination.rebalance import GroupEffects, Then
from mainstem.coordination.records import GroupSaved
from mainstem.coordination.settings import GroupSettings
from mainstem.coordination.shard import Instant
from mainstem.coordination.shard_runtime import LiveShard, as_coordinator_error
from mainstem.coordination.shards_runtime import InternalTopic, Shards
from mainstem.coordination.share_configs import ShareConfigs
from mainstem.coordination.share_settings import ShareSettings
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.limits import GROUPS_MAX

_log = logging.getLogger(__name__)

LiveGroups = LiveShard[GroupShard, GroupFact]


class GroupShards(Shards[GroupShard, GroupFact]):
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

    def make(self, partition: int) -> LiveGroups:
        """A shard without any facts yet."""
        shard = GroupShard(self._settings, self._topics, self._new_id, self._sharing)
        return LiveShard(shard, GROUP_CODEC, self._topic.open_stream(partition), partition)

    def check_room(self, live: LiveGroups, key: str) -> None:
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

    def sweep(self, live: LiveGroups) -> None:
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


def store_then(live: LiveGroups, saved: GroupSaved, then: Then, now: Instant) -> GroupEffects:
    """Store a fact that something waits for; what follows from it, or from its refusal."""
    try:
        for _ in live.append([saved], now.wall_ms):
            pass  # replayed by ``stored``, together with what waits for it
    except MainstemError as error:
        _log.warning("generation of group %s cannot be stored: %s", saved.group_id, error)
        return live.shard.groups.refused(then, as_coordinator_error(error), now)
    return live.shard.groups.stored(then, saved, now)
