"""The driver's half of writing to topics: commits or aborts what tasks have written."""

import asyncio
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from mainstem.client.transactions import TransactionHandle, end_transaction
from mainstem.pipelines.spark.cluster_client import cached_client
from mainstem.pipelines.spark.writing.commit_message import TaskCommit
from mainstem.pipelines.spark.writing.completion import WrittenBatch, complete, give_up

Messages = Sequence[WriterCommitMessage | None]


def end_batch(
    servers: str, given: dict[str, str], messages: Messages, number: int, *, commit: bool
) -> None:
    """Ends a batch of the ledger; one that the ledger already has is committed in any case."""
    batch = _batch(messages, number)
    if batch is not None:
        wire = cached_client(servers, given)
        wire.run((complete if commit else give_up)(wire.cluster, batch))


def end_frame(servers: str, given: dict[str, str], messages: Messages, *, commit: bool) -> None:
    """Ends the transactions of a write without a ledger."""
    wire = cached_client(servers, given)

    async def end_all() -> None:
        await asyncio.gather(
            *(end_transaction(wire.cluster, each, commit=commit) for each in _handles(messages))
        )

    wire.run(end_all())


def _handles(messages: Messages) -> list[TransactionHandle]:
    written = [each for each in messages if isinstance(each, TaskCommit)]
    return [each.handle for each in written if each.handle is not None]


def _batch(messages: Messages, number: int) -> WrittenBatch | None:
    """The batch of the tasks' messages; None if no task sent one."""
    written = [each for each in messages if isinstance(each, TaskCommit)]
    if not written:
        return None
    owner = written[0].owner
    return WrittenBatch(
        owner.query,
        owner.sink,
        owner.run,
        number,
        tuple(_handles(messages)),
        is_smooth=len(written) == len(messages) and not any(each.attempt for each in written),
    )
