"""Transactional offset commits: stored now, in effect once the marker is written."""

from collections.abc import Callable, Sequence

from mainstem.coordination.groups.requests import CommitRequest, CommitResult
from mainstem.coordination.groups.shards_driver import GroupShards, LiveGroupShard
from mainstem.coordination.offsets.pending import GroupFact
from mainstem.coordination.shards.persistence_driver import as_coordinator_error
from mainstem.coordination.shards.state_machine import Instant
from mainstem.coordination.transactions.state import ProducerIdentity
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.limits import GROUP_NAME_LENGTH_MAX
from mainstem.streams.producers.transaction_markers import TransactionMarker


class TransactionalGroupOffsets:
    """The group coordinator as used by the transaction coordinator."""

    def __init__(self, shards: GroupShards, now: Callable[[], Instant]) -> None:
        self._shards = shards
        self._now = now

    async def prepare_offset_commit(self, group_id: str) -> int:
        """Ensure that the group's shard is available; returns its partition."""
        check_name(group_id)
        try:
            return (await self._shards.find_to_write(group_id)).partition
        except Unavailable as error:
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise
            return self._shards.partition_of(group_id)  # another node coordinates it

    async def commit_in_transaction(
        self, request: CommitRequest, producer: ProducerIdentity, check: Callable[[], None]
    ) -> list[CommitResult]:
        """Store offsets that take effect once a transaction commits; the outcome for each.

        ``check`` is called right before they are written and raises if the transaction has ended:
        otherwise its marker would precede the offsets it decides.
        """
        check_name(request.group_id)
        live = await self._shards.find_to_write(request.group_id)
        now = self._now()
        with live.check_fresh_on_error():
            outcomes, facts = live.shard.commit_in_transaction(request, producer, now)
        check()
        await store(live, facts, now)
        return outcomes

    async def end_transaction(
        self, partition: int, producer: ProducerIdentity, marker: TransactionMarker
    ) -> None:
        """End a transaction that has pending offsets in this partition."""
        live = self._shards.in_partition(partition)
        live.end_transaction(producer, marker)
        await live.safe()


async def store(live: LiveGroupShard, facts: Sequence[GroupFact], now: Instant) -> None:
    """Store and replay facts; returns once they are committed."""
    try:
        live.store(facts, now.wall_ms)
    except MainstemError as error:
        raise as_coordinator_error(error) from error
    await live.safe(has_stored=bool(facts))


def check_name(group_id: str, *, may_be_empty: bool = False) -> None:
    """Refuse an invalid group id."""
    # Old consumers that assign partitions themselves may commit offsets under the empty group id.
    if len(group_id) > GROUP_NAME_LENGTH_MAX or not (group_id or may_be_empty):
        raise InvalidRequest(
            ErrorCode.INVALID_GROUP,
            f"a group id must have 1 to {GROUP_NAME_LENGTH_MAX} characters, not {len(group_id)}",
        )
