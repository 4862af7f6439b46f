"""Ends the transactions of a batch after any failure: the driver's half of exactly once.

The first batch of a run:

    take over the ledger ─▶ read it ─▶ take over own transactions ─▶ list other open ones
        ─▶ record ─▶ commit own, abort the listed ones

Guarantees: a batch is recorded before the first of its transactions is committed; a batch that the
ledger has is completed as it was recorded, and newer attempts at it are aborted; no transaction of
a run that has ended stays open once the next one has committed. They also hold with two drivers,
one of which was paused anywhere and resumes: the driver that takes over the ledger fences the
other, so what it reads is final. A driver aborts only transactions that it listed before it
recorded, by producer id and epoch; a driver that took over later has given new epochs to its own
transactions by then, so a late abort does not affect them.
"""

import asyncio
from collections.abc import Collection
from typing import Final, NamedTuple, TypeVar

from mainstem.client.administration.transactions import TransactionAdmin
from mainstem.client.cluster import Cluster
from mainstem.client.producing.transaction_calls import TransactionRequests
from mainstem.client.transactions import TransactionHandle, end_transaction
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.pipelines.spark.writing.ledger import (
    NOTHING,
    Ledger,
    LedgerEntry,
    LedgerWriter,
    id_prefix,
)

TIMEOUT_MS: Final = 120_000
ONGOING: Final = "Ongoing"
SWEEP_EVERY: Final = 64  # interval in batches, for transactions of speculative tasks
RUNS_REMEMBERED_MAX: Final = 256

Run = tuple[str, str, str]  # query, sink, run
T = TypeVar("T")


class WrittenBatch(NamedTuple):
    """A batch whose tasks are done; ``is_smooth`` if each needed one attempt."""

    query: str
    sink: str
    run: str
    number: int
    handles: tuple[TransactionHandle, ...]
    is_smooth: bool = True

    @property
    def of_run(self) -> Run:
        """The run that has written it."""
        return self.query, self.sink, self.run


# Runs that this process has committed for, with the ledger that they took over: other open
# transactions are ended. Only an optimisation; a new process takes over and lists again.
_owned: dict[Run, tuple[Cluster, LedgerWriter]] = {}
# Runs of this process whose ledger another driver has taken over.
_fenced: dict[Run, None] = {}


async def complete(cluster: Cluster, batch: WrittenBatch) -> None:
    """Commits a batch, once.

    Raises:
        Fenced: another driver writes this query now; this one commits nothing of the batch.
        MainstemError: the cluster does not answer in time; a retry, or a restart of the query,
            continues from there.
    """
    # Stored again after success: after a failure the ledger has to be read.
    owner, writer = _owned.pop(batch.of_run, (None, None))
    is_known = writer is not None and owner is cluster
    if writer is None or not is_known:
        writer = await LedgerWriter.take_over(cluster, batch.query, batch.sink)
    try:
        await _complete(cluster, batch, writer, is_known=is_known)
    except BaseException as error:
        if isinstance(error, Fenced) and error.code is ErrorCode.FENCED_PRODUCER:
            _remember(_fenced, batch.of_run, None)
        await writer.close()
        raise
    _remember(_owned, batch.of_run, (cluster, writer))


async def _complete(
    cluster: Cluster, batch: WrittenBatch, writer: LedgerWriter, *, is_known: bool
) -> None:
    handles = batch.handles
    if not is_known:
        entry = await Ledger(cluster).entry(batch.query, batch.sink)
        if entry is not None and entry.batch >= batch.number:
            await _sweep(cluster, batch, writer, entry)
            return
        handles = await _taken_over(cluster, handles)
    entry = LedgerEntry(batch.number, handles)
    if not is_known or not batch.is_smooth or batch.number % SWEEP_EVERY == 0:
        await _sweep(cluster, batch, writer, entry)
    elif handles:
        await writer.record(entry)
        await _commit(cluster, handles)


async def give_up(cluster: Cluster, batch: WrittenBatch) -> None:
    """Aborts a batch, unless the ledger has it: then the next start completes it."""
    _, writer = _owned.pop(batch.of_run, (None, None))
    if writer is not None:
        await writer.close()
    if batch.of_run in _fenced:
        # Another driver has the ledger and must not be affected; abort only own transactions.
        entry = await Ledger(cluster).entry(batch.query, batch.sink) or NOTHING
        recorded = {handle.transactional_id for handle in entry.handles}
        own = [each.transactional_id for each in batch.handles]
        await asyncio.gather(*(_reclaim(cluster, each) for each in own if each not in recorded))
        return
    writer = await LedgerWriter.take_over(cluster, batch.query, batch.sink)
    try:
        entry = await Ledger(cluster).entry(batch.query, batch.sink) or NOTHING
        if entry.batch != batch.number:
            stale = await _open_beside(cluster, batch, writer, keep=())
            if stale:
                await writer.record(entry)
            await _abort(cluster, stale)
    finally:
        await writer.close()


async def _sweep(
    cluster: Cluster, batch: WrittenBatch, writer: LedgerWriter, entry: LedgerEntry
) -> None:
    """Records an entry, ends its transactions and aborts every other one of the query.

    The record proves that no other driver had taken over when the others were listed.
    """
    stale = await _open_beside(cluster, batch, writer, keep=entry.handles)
    if stale or entry.handles:
        await writer.record(entry)
    if entry.batch == batch.number:
        await _commit(cluster, entry.handles)
    await _abort(cluster, stale)


async def _taken_over(
    cluster: Cluster, handles: Collection[TransactionHandle]
) -> tuple[TransactionHandle, ...]:
    """The same prepared transactions under new epochs, so that earlier drivers cannot end them."""
    return tuple(await asyncio.gather(*(_take_one(cluster, handle) for handle in handles)))


async def _take_one(cluster: Cluster, handle: TransactionHandle) -> TransactionHandle:
    calls = TransactionRequests(cluster, handle.transactional_id, timeout_ms=TIMEOUT_MS)
    found = await calls.init(transaction_timeout_ms=60_000, two_phase=True, keep_prepared=True)
    if found.ongoing != (handle.producer_id, handle.epoch):
        raise Fenced(
            ErrorCode.FENCED_PRODUCER,
            "another driver of the query has aborted a task's transaction",
            subject=handle.transactional_id,
            remedy="use a checkpoint in one driver only; stop this one or the other",
        )
    return TransactionHandle(
        handle.transactional_id, found.producer_id, found.epoch, found.is_version_2
    )


async def _commit(cluster: Cluster, handles: Collection[TransactionHandle]) -> None:
    await asyncio.gather(*(_commit_one(cluster, handle) for handle in handles))


async def _commit_one(cluster: Cluster, handle: TransactionHandle) -> None:
    try:
        await end_transaction(cluster, handle, commit=True, timeout_ms=TIMEOUT_MS)
    except InvalidRequest as error:
        if error.code is ErrorCode.INVALID_PRODUCER_MAPPING:
            return  # ended so long ago that its id has expired
        raise InvalidRequest(
            error.code,
            f"a batch that was written could not be committed: {error.cause}",
            subject=handle.transactional_id,
            remedy="its transaction was aborted; restore the records from the source, "
            "then start with a new checkpoint",
        ) from error


async def _open_beside(
    cluster: Cluster, batch: WrittenBatch, writer: LedgerWriter, keep: Collection[TransactionHandle]
) -> list[TransactionHandle]:
    """The current handles of the query's open transactions, except ``keep``."""
    kept = {writer.transactional_id, *(handle.transactional_id for handle in keep)}
    prefix = id_prefix(batch.query, batch.sink)
    admin = TransactionAdmin(cluster, timeout_ms=TIMEOUT_MS)
    open_ids = [
        each.id
        for each in await admin.list_all([ONGOING])
        if each.id.startswith(prefix) and each.id not in kept
    ]
    found = await asyncio.gather(*(admin.describe(each) for each in open_ids))
    return [
        TransactionHandle(each.id, each.producer_id, each.epoch, writer.is_version_2)
        for each in found
        if each.state == ONGOING
    ]


async def _abort(cluster: Cluster, stale: Collection[TransactionHandle]) -> None:
    await asyncio.gather(*(_abort_one(cluster, handle) for handle in stale))


async def _abort_one(cluster: Cluster, handle: TransactionHandle) -> None:
    try:
        await end_transaction(cluster, handle, commit=False, timeout_ms=TIMEOUT_MS)
    except (Fenced, InvalidRequest):
        return  # it has ended, or a later driver has taken it over


async def _reclaim(cluster: Cluster, transactional_id: str) -> None:
    """Aborts the open transaction of an id and fences its last owner."""
    calls = TransactionRequests(cluster, transactional_id, timeout_ms=TIMEOUT_MS)
    await calls.init(transaction_timeout_ms=60_000)


def _remember(runs: dict[Run, T], run: Run, what: T) -> None:
    runs[run] = what
    while len(runs) > RUNS_REMEMBERED_MAX:
        del runs[next(iter(runs))]
