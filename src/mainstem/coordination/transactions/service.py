"""Transaction coordinator as other packages use it: every request, on top of the shards.

    end ─▶ Prepare… committed ─▶ markers to every partition, until all are committed ─▶ answer
                                                          └─▶ Complete… stored

The answer to a client waits for the markers, with a timeout, so that the records of an ended
transaction are visible. A request that finds markers still being written waits for them, with the
same timeout, so that clients seldom have to retry. After a restart decided transactions are
completed by writing the markers again. Refusals are raised as ``MainstemError``s.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from mainstem.coordination.groups.requests import CommitRequest, CommitResult
from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.coordination.shards.persistence_driver import as_coordinator_error
from mainstem.coordination.shards.registry_driver import InternalTopic
from mainstem.coordination.transactions import rules
from mainstem.coordination.transactions.completion_driver import TransactionCompleter
from mainstem.coordination.transactions.markers_driver import Markers, PendingOffsetStore
from mainstem.coordination.transactions.remote_coordinator_service import Add, RemoteCoordinator
from mainstem.coordination.transactions.requests import (
    DescribedTransaction,
    EndRequest,
    InitAnswer,
    InitRequest,
    ListedTransaction,
    TransactionFilter,
)
from mainstem.coordination.transactions.settings import TransactionSettings
from mainstem.coordination.transactions.shard import TransactionDecision, TransactionShard, facts_of
from mainstem.coordination.transactions.shards_driver import LiveTransactionShard, TransactionShards
from mainstem.coordination.transactions.state import Partition, ProducerIdentity
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.limits import TRANSACTIONAL_ID_LENGTH_MAX
from mainstem.streams.producers.transaction_markers import TransactionMarker

_log = logging.getLogger(__name__)

Decide = Callable[
    [TransactionShard, int, int], TransactionDecision
]  # shard, spare producer id, now


class GroupOffsetStore(PendingOffsetStore, Protocol):
    """Committed offsets of groups, which transactions may change."""

    async def prepare_offset_commit(self, group_id: str) -> int:
        """Ensure that the group's shard is available; returns its partition."""
        ...

    async def commit_in_transaction(
        self, request: CommitRequest, producer: ProducerIdentity, check: Callable[[], None]
    ) -> list[CommitResult]:
        """Store offsets that take effect once a transaction commits."""
        ...


class TransactionCoordinator:
    """The coordinator of the transactions on this node.

    Args:
        settings: timeouts and limits.
        topic: the internal topic in which facts are stored.
        clock: source of time.
        new_producer_id: returns unused producer ids.
        markers: writes markers to partitions.
        group_offsets: the committed offsets of groups.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        topic: InternalTopic,
        clock: Clock,
        *,
        new_producer_id: Callable[[], Awaitable[tuple[int, int]]],
        markers: Markers,
        group_offsets: GroupOffsetStore,
    ) -> None:
        self.remote: RemoteCoordinator | None = None  # the coordinators of other nodes, if any
        self._settings = settings
        self._clock = clock
        self._new_producer_id = new_producer_id
        self._markers = markers
        self._group_offsets = group_offsets
        self._shards = self.shards = TransactionShards(settings, topic, clock)
        self._spare_id: int | None = None
        self._finisher = TransactionCompleter(markers, clock, self._shards.run)

    def start(self) -> None:
        """Start loading the shards; call it in the running loop, once topics are known."""
        self._shards.start(self._loaded, self._finisher.given_up)
        self._shards.run(self._watch_timeouts())

    def stop(self) -> None:
        """Refuse all further requests; decided transactions are completed after the next start."""
        self._shards.stop()
        self._finisher.stop()

    def is_loaded(self) -> bool:
        """Whether every shard that can be loaded serves its transactions."""
        return self._shards.is_loaded()

    def coordinator_partition(self, transactional_id: str) -> int:
        """The partition of the internal topic in which a transactional id is stored."""
        return self._shards.partition_of(transactional_id)

    async def init(self, request: InitRequest) -> InitAnswer:
        """Handle InitProducerId; fences the previous producer and aborts its open transaction."""
        _check_id(request.transactional_id)
        await self._shards.find_to_write(request.transactional_id)
        decision = await self._carry_out(
            request.transactional_id, lambda shard, spare, now: shard.init(request, spare, now)
        )
        assert decision.answer is not None, "a decided init has an answer"
        return decision.answer

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[Partition],
        *,
        verify_only: bool,
        forward: bool = True,
    ) -> Sequence[ErrorCode | None]:
        """Add partitions to the ongoing transaction, or only verify that they are in it.

        With ``forward`` the request is sent to the coordinator if that is another node. The answer
        is valid when it is returned: a caller that writes at once, without awaiting anything else,
        writes before the transaction can end.
        """
        _check_id(transactional_id)
        producer = ProducerIdentity(producer_id, epoch)
        if forward and self.remote is not None and not self.remote.is_here(transactional_id):
            asked = Add(transactional_id, producer, tuple(partitions), verify_only)
            return await self.remote.add(asked)
        if not verify_only:
            await self._carry_out(
                transactional_id,
                lambda shard, _, now: shard.add(transactional_id, producer, partitions, now),
            )
        live = self._find(transactional_id)
        with live.check_fresh_on_error():
            live.shard.holds(transactional_id, producer, partitions)
            await live.safe(has_stored=not verify_only)
            return live.shard.holds(transactional_id, producer, partitions)

    async def add_offsets(
        self, transactional_id: str, producer_id: int, epoch: int, group_id: str
    ) -> None:
        """Add the offsets of a group to the transaction."""
        partition = (OFFSETS_TOPIC, await self._group_offsets.prepare_offset_commit(group_id))
        await self.add_partitions(
            transactional_id, producer_id, epoch, [partition], verify_only=False
        )

    async def commit_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        request: CommitRequest,
        *,
        verify_only: bool,
    ) -> list[CommitResult]:
        """Store offsets that take effect once the transaction commits; the outcome for each.

        Without ``verify_only`` the group is added to the transaction as well.
        """
        place = (OFFSETS_TOPIC, await self._group_offsets.prepare_offset_commit(request.group_id))
        here = self.remote is None or self.remote.is_here(transactional_id)
        [refusal] = await self.add_partitions(
            transactional_id, *producer, [place], verify_only=verify_only
        )

        def check() -> None:
            if not here:  # already verified by the remote coordinator
                return
            [refused] = self._find(transactional_id).shard.holds(
                transactional_id, producer, [place]
            )
            if refused is not None:
                raise InvalidRequest(
                    refused, "the group is not part of the transaction", subject=transactional_id
                )

        if refusal is not None:
            check()
            raise InvalidRequest(
                refusal, "the group is not part of the transaction", subject=transactional_id
            )
        return await self._group_offsets.commit_in_transaction(request, producer, check)

    async def end(self, request: EndRequest) -> ProducerIdentity:
        """Decide the outcome of a transaction; returns the identity its producer uses from now on.

        Readers see the outcome when this returns, unless a marker could not be written within the
        timeout: the outcome is final already.
        """
        _check_id(request.transactional_id)
        decision = await self._carry_out(
            request.transactional_id, lambda shard, spare, now: shard.end(request, spare, now)
        )
        await self._finisher.finished(request.transactional_id, self._settings.patience_ms / 1000)
        return decision.transaction.client

    async def abort_hanging(
        self, partition: Partition, producer: ProducerIdentity, coordinator_epoch: int
    ) -> None:
        """Abort a hanging transaction in one partition, which its coordinator does not know."""
        if any(
            partition in known.partitions and known.producer_id == producer.producer_id
            for live in self._shards.all()
            for known in live.shard
        ):
            raise InvalidRequest(
                ErrorCode.INVALID_TXN_STATE,
                "the transaction is not hanging, its coordinator will end it",
                subject=f"producer {producer.producer_id}",
            )
        marker = TransactionMarker(commit=False, coordinator_epoch=coordinator_epoch)
        await self._markers.write(partition, producer, marker)

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """Describe a transactional id."""
        _check_id(transactional_id)
        live = self._shards.find(transactional_id)
        if live is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_TRANSACTION, subject=transactional_id)
        live.check_fresh()
        return live.shard.describe(transactional_id)

    def list(self, wanted: TransactionFilter) -> Sequence[ListedTransaction]:
        """The transactions that match a filter."""
        now_ms = self._clock.wall_ms()
        return [line for live in self._shards.all() for line in live.shard.list(wanted, now_ms)]

    async def _carry_out(self, transactional_id: str, decide: Decide) -> TransactionDecision:
        """Decide, store and wait for the commit, after markers that are still being written."""
        give_up = self._clock.monotonic() + self._settings.patience_ms / 1000
        while True:
            spare_id = await self._spare()
            live = self._find(transactional_id)
            with live.check_fresh_on_error():
                decision = decide(live.shard, spare_id, self._clock.wall_ms())
            if decision.is_change:
                self._store(live, decision)
            if not decision.is_concurrent:
                await live.safe(has_stored=decision.is_change)
                return decision
            wait_max_s = give_up - self._clock.monotonic()
            if not await self._finisher.finished(transactional_id, wait_max_s):
                raise rules.concurrent(decision.transaction)

    def _store(self, live: LiveTransactionShard, decision: TransactionDecision) -> None:
        """Store a decision; if it is an outcome, start to write its markers."""
        if decision.uses_spare:
            self._spare_id = None
        try:
            live.store(facts_of(decision), self._clock.wall_ms())
        except MainstemError as error:
            raise as_coordinator_error(error) from error
        if decision.transaction.state.is_prepared:
            self._finisher.begin(live, decision.transaction.id)

    def _loaded(self, live: LiveTransactionShard) -> None:
        """Start to serve a loaded shard: complete its decided transactions."""
        self._shards.sweep(live)
        for transactional_id in live.shard.prepared():
            self._finisher.begin(live, transactional_id)

    async def _watch_timeouts(self) -> None:
        while True:
            await asyncio.sleep(self._settings.timeout_check_ms / 1000)
            now_ms = self._clock.wall_ms()
            overdue = [
                (live, each)
                for live in self._shards
                if live.is_ready
                for each in live.shard.overdue(now_ms)
            ]
            for live, transactional_id in overdue:
                await self._abort_overdue(live, transactional_id, now_ms)

    async def _abort_overdue(
        self, live: LiveTransactionShard, transactional_id: str, now_ms: int
    ) -> None:
        try:
            spare_id = await self._spare()
            if live.shard.is_overdue(transactional_id, now_ms):
                self._store(live, live.shard.time_out(transactional_id, spare_id, now_ms))
                _log.info("transaction %s timed out and is aborted", transactional_id)
        except MainstemError as error:
            _log.warning(
                "transaction %s timed out but could not be aborted, will retry: %s",
                transactional_id,
                error,
            )

    async def _spare(self) -> int:
        """An unused producer id; the same one until a decision uses it."""
        while self._spare_id is None:
            fresh, _ = await self._new_producer_id()
            self._spare_id = fresh if self._spare_id is None else self._spare_id
        return self._spare_id

    def _find(self, transactional_id: str) -> LiveTransactionShard:
        live = self._shards.find(transactional_id)
        if live is None:
            rules.need({}, transactional_id)
            raise AssertionError("without a shard no id is known")
        return live


def _check_id(transactional_id: str) -> None:
    if not 0 < len(transactional_id) <= TRANSACTIONAL_ID_LENGTH_MAX:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            f"a transactional id must have 1 to {TRANSACTIONAL_ID_LENGTH_MAX} characters, not "
            f"{len(transactional_id)}",
        )
