"""What the tasks of a write and the driver tell each other."""

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

if TYPE_CHECKING:
    from mainstem.client.transactions import TransactionHandle


class WriteOwner(NamedTuple):
    """On whose behalf a task writes; ``two_phase`` transactions wait for the driver for ever."""

    query: str
    sink: str
    run: str
    two_phase: bool = True


class TaskCommit(WriterCommitMessage):
    """What a task tells the driver: its transaction, if it wrote anything."""

    def __init__(self, owner: WriteOwner, handle: "TransactionHandle | None", attempt: int) -> None:
        self.owner = owner
        self.handle = handle
        self.attempt = attempt
