"""Ends the transactions of a batch, whatever came before: the driver's half of exactly once.

Promises: a batch is recorded before the first of its transactions is committed; a batch that the
ledger has is completed as it was recorded, and newer attempts at it are aborted; nothing of a run
that has ended stays open once the next one has committed.
"""

import asyncio
from collections.abc import Collection
from typing import Final, NamedTuple

from mainstem.client.cluster import Cluster
from mainstem.client.transaction_admin import TransactionAdmin
from mainstem.client.transaction_calls import TransactionCalls
from mainstem.client.transactions import TransactionHandle, end_transaction
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.pipelines.spark.ledger import Entry, Ledger

TIMEOUT_MS: Final = 120_000
ONGOING: Final = "Ongoing"
SWEEP_EVERY: Final = 64  # batches, for what speculative tasks leave behind
RUNS_REMEMBERED_MAX: Final = 256


class Batch(NamedTuple):
    """A batch whose tasks are done; ``is_smooth`` where each needed one attempt."""

    query: str
    sink: str
    run: str
    number: int
    handles: tuple[TransactionHandle, ...]
    is_smooth: bool = True


# Runs that this process has committed for: nothing else writes their ledger, and what they found
# open is ended. Only a short cut; a new process looks again.
_swept: dict[tuple[str, str, str], None] = {}


async def complete(cluster: Cluster, batch: Batch) -> None:
    """Makes a batch count, once.

    Raises:
        MainstemError: the cluster does not answer in time; trying again, or starting the query
            again, goes on from there.
    """
    run = (batch.query, batch.sink, batch.run)
    is_known = run in _swept
    ledger = Ledger(cluster)
    entry = None if is_known else await ledger.entry(batch.query, batch.sink)
    if entry is not None and entry.batch >= batch.number:
        if entry.batch == batch.number:
            await _commit(cluster, entry.handles)
        await _sweep(cluster, batch, keep=entry.handles)
        return
    if not is_known or not batch.is_smooth or batch.number % SWEEP_EVERY == 0:
        await _sweep(cluster, batch, keep=batch.handles)
    if batch.handles:
        await ledger.record(batch.query, batch.sink, Entry(batch.number, batch.handles))
        await _commit(cluster, batch.handles)
    _remember(run)


async def give_up(cluster: Cluster, batch: Batch) -> None:
    """Aborts a batch, unless the ledger has it: then the next start completes it."""
    _swept.pop((batch.query, batch.sink, batch.run), None)
    entry = await Ledger(cluster).entry(batch.query, batch.sink)
    if entry is not None and entry.batch == batch.number:
        return
    await _sweep(cluster, batch, keep=())


def id_prefix(query: str, sink: str) -> str:
    """How the transactional ids of a query begin."""
    return f"spark/{query}/{sink}/"


async def _commit(cluster: Cluster, handles: Collection[TransactionHandle]) -> None:
    await asyncio.gather(*(_commit_one(cluster, handle) for handle in handles))


async def _commit_one(cluster: Cluster, handle: TransactionHandle) -> None:
    try:
        await end_transaction(cluster, handle, commit=True, timeout_ms=TIMEOUT_MS)
    except InvalidRequest as error:
        if error.code is ErrorCode.INVALID_PRODUCER_MAPPING:
            return  # ended so long ago that the cluster has forgotten the id
        raise InvalidRequest(
            error.code,
            f"a batch that was written could not be committed: {error.cause}",
            subject=handle.transactional_id,
            remedy="somebody has aborted its transaction; restore the records from the source, "
            "then begin with a new checkpoint",
        ) from error


async def _sweep(cluster: Cluster, batch: Batch, keep: Collection[TransactionHandle]) -> None:
    """Aborts every open transaction of the query but those."""
    kept = {handle.transactional_id for handle in keep}
    prefix = id_prefix(batch.query, batch.sink)
    admin = TransactionAdmin(cluster, timeout_ms=TIMEOUT_MS)
    open_ids = [
        each.id
        for each in await admin.list_all([ONGOING])
        if each.id.startswith(prefix) and each.id not in kept
    ]
    await asyncio.gather(*(_abort(cluster, each) for each in open_ids))


async def _abort(cluster: Cluster, transactional_id: str) -> None:
    """Taking the id over aborts what its last owner left open, and fences that owner."""
    calls = TransactionCalls(cluster, transactional_id, timeout_ms=TIMEOUT_MS)
    await calls.init(transaction_timeout_ms=60_000)


def _remember(run: tuple[str, str, str]) -> None:
    _swept[run] = None
    while len(_swept) > RUNS_REMEMBERED_MAX:
        del _swept[next(iter(_swept))]
