"""The broker API for transactions.

Requests and answers are plain values, re-exported here, so that protocols import only this module.
Refusals are raised as ``MainstemError``s; ``CONCURRENT_TRANSACTIONS`` means retry soon, because the
markers of the last transaction are still being written.
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
    """Transactions over streams and committed offsets of groups."""

    def coordinator_partition(self, transactional_id: str) -> int:
        """The partition of the internal topic that a transactional id is kept in."""
        ...

    async def init(self, request: InitRequest) -> InitAnswer:
        """Assign a producer id and epoch; the id's previous producer is fenced and aborted."""
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
        """Add partitions to the ongoing transaction, or only check whether they are in it.

        The answer is valid when the call returns: a caller that writes at once, without another
        ``await``, writes before the transaction can end.
        """
        ...

    async def add_offsets(
        self, transactional_id: str, producer_id: int, epoch: int, group_id: str
    ) -> None:
        """Add the offsets of a group to the transaction."""
        ...

    async def commit_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        request: CommitRequest,
        *,
        verify_only: bool,
    ) -> list[CommitResult]:
        """Commit offsets with the transaction; returns the result for each.

        Without ``verify_only`` the group is added to the transaction on the way.
        """
        ...

    async def end(self, request: EndRequest) -> ProducerIdentity:
        """Commit or abort a transaction; returns the producer id and epoch to use from now on."""
        ...

    async def abort_hanging(
        self, partition: tuple[str, int], producer: ProducerIdentity, coordinator_epoch: int
    ) -> None:
        """End a transaction in one partition that its coordinator knows nothing about."""
        ...

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """Describe one transactional id; raises ``UNKNOWN_TRANSACTION``."""
        ...

    def list(self, wanted: TransactionFilter) -> Sequence[ListedTransaction]:
        """The transactions that match a filter."""
        ...
