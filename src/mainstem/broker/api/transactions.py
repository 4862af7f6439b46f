"""The broker API for transactions.

Requests and answers are plain values, re-exported here so that protocols need to look no further.
Refusals are raised as ``MainstemError``s; ``CONCURRENT_TRANSACTIONS`` asks to come again a moment
later, because the markers of the last transaction are still being written.
"""

from collections.abc import Sequence
from typing import Protocol

from mainstem.coordination.groups.requests import CommitRequest, CommitResult
from mainstem.coordination.transactions.requests import (
    DescribedTransaction,
    EndRequest,
    InitAnswer,
    InitRequest,
    ListedTransaction,
    TransactionFilter,
)
from mainstem.coordination.transactions.state import NOBODY, STATE_LABELS, ProducerIdentity
from mainstem.model.errors import ErrorCode

__all__ = [
    "NOBODY",
    "STATE_LABELS",
    "CommitRequest",
    "CommitResult",
    "DescribedTransaction",
    "EndRequest",
    "InitAnswer",
    "InitRequest",
    "ListedTransaction",
    "ProducerIdentity",
    "TransactionFilter",
    "Transactions",
]


class Transactions(Protocol):
    """Transactions over streams and positions of groups."""

    def coordinator_partition(self, transactional_id: str) -> int:
        """The partition of the internal topic that a transactional id is kept in."""
        ...

    async def init(self, request: InitRequest) -> InitAnswer:
        """Give a producer its identity; whoever had the id before is fenced, its work aborted."""
        ...

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        verify_only: bool,
    ) -> Sequence[ErrorCode | None]:
        """Add partitions to the ongoing transaction, or only look whether they are in it.

        What is answered holds when the answer is taken up: a caller that writes at once, without
        waiting for anything else, writes before the transaction can end.
        """
        ...

    async def add_offsets(
        self, transactional_id: str, producer_id: int, epoch: int, group_id: str
    ) -> None:
        """Let positions of a group be committed within the transaction."""
        ...

    async def commit_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        request: CommitRequest,
        *,
        verify_only: bool,
    ) -> list[CommitResult]:
        """Keep positions that count once the transaction commits; the outcome for each.

        Without ``verify_only`` the group is added to the transaction on the way.
        """
        ...

    async def end(self, request: EndRequest) -> ProducerIdentity:
        """Decide the outcome of a transaction; what its producer has to show from now on."""
        ...

    async def abort_hanging(
        self, partition: tuple[str, int], producer: ProducerIdentity, coordinator_epoch: int
    ) -> None:
        """End a transaction in one partition that its coordinator knows nothing about."""
        ...

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """One transactional id in full; ``UNKNOWN_TRANSACTION`` without one."""
        ...

    def list(self, wanted: TransactionFilter) -> Sequence[ListedTransaction]:
        """The transactions that a filter lets through."""
        ...
