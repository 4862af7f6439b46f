"""The shards of transactional ids on this node: limits and expiry."""

from mainstem.coordination.shards.persistence_driver import LiveShard
from mainstem.coordination.shards.registry_driver import InternalTopic, ShardRegistry
from mainstem.coordination.transactions.facts import TRANSACTION_CODEC, TransactionFact
from mainstem.coordination.transactions.settings import TransactionSettings
from mainstem.coordination.transactions.shard import TransactionShard
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.limits import TRANSACTIONAL_IDS_MAX
from mainstem.model.topic_name import TRANSACTION_STATE_TOPIC

LiveTransactionShard = LiveShard[TransactionShard, TransactionFact]


class TransactionShards(ShardRegistry[TransactionShard, TransactionFact]):
    """All transactional ids of this node."""

    topic_name = TRANSACTION_STATE_TOPIC

    def __init__(self, settings: TransactionSettings, topic: InternalTopic, clock: Clock) -> None:
        super().__init__(
            topic,
            clock,
            partitions=settings.state_partitions,
            sweep_ms=settings.expiration_check_ms,
        )
        self._settings = settings

    def make(self, partition: int) -> LiveTransactionShard:
        """Make an empty shard."""
        stream = self._topic.open_stream(partition)
        return LiveShard(TransactionShard(self._settings), TRANSACTION_CODEC, stream, partition)

    def check_capacity(self, live: LiveTransactionShard, key: str) -> None:
        """Refuse a new transactional id beyond the limit."""
        if live.shard.get(key) is not None:
            return
        count = sum(len(each.shard) for each in self)
        if count >= TRANSACTIONAL_IDS_MAX:
            raise Unavailable(
                ErrorCode.COORDINATOR_UNAVAILABLE,
                f"the limit of {TRANSACTIONAL_IDS_MAX} transactional ids is reached",
                subject=key,
            )

    def sweep(self, live: LiveTransactionShard) -> None:
        """Delete unused ids that have expired."""
        if live.is_ready:
            self.store_or_warn(live, live.shard.expire(self._clock.wall_ms()))
