"""Requests to a transaction coordinator and its answers: plain values, no behaviour.

Errors are ``MainstemError``s. Where one request concerns many partitions, the answer lists an
``ErrorCode`` or None for each of them, in the order of the request.
"""

from collections.abc import Sequence

from msgspec import Struct

from mainstem.coordination.transactions.state import NOBODY, ProducerIdentity

# Transactions of version 2 get a new epoch with every transaction (KIP-890).
FIRST_VERSION_WITH_BUMP = 2


class InitRequest(Struct, frozen=True, kw_only=True):
    """InitProducerId: a producer starts, or recovers from an error (``expected`` is its identity).

    ``two_phase`` transactions wait for an external coordinator and do not time out;
    ``keep_prepared`` keeps the one that an earlier incarnation left prepared (KIP-939).
    """

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity = NOBODY
    two_phase: bool = False
    keep_prepared: bool = False


class InitAnswer(Struct, frozen=True):
    """The identity to write with; ``ongoing`` is the identity of a kept transaction, if any."""

    producer: ProducerIdentity
    ongoing: ProducerIdentity = NOBODY


class EndRequest(Struct, frozen=True, kw_only=True):
    """EndTxn: commit or abort; ``client_version`` is the transaction version of the client."""

    transactional_id: str
    producer: ProducerIdentity
    commit: bool
    client_version: int = FIRST_VERSION_WITH_BUMP


class TransactionFilter(Struct, frozen=True, kw_only=True):
    """Which transactions to list; an empty filter matches all.

    ``duration_ms`` selects those that have been open for longer; ``pattern`` is a regular
    expression that the whole id has to match.
    """

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1
    pattern: str | None = None


class ListedTransaction(Struct, frozen=True):
    """Entry of a list of transactions."""

    transactional_id: str
    producer_id: int
    state: str


class DescribedTransaction(Struct, frozen=True):
    """Description of a transactional id."""

    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    producer: ProducerIdentity
    partitions: Sequence[tuple[str, int]]
