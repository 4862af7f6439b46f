"""The messages from the tasks of a write to the driver."""

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

if TYPE_CHECKING:
    from mainstem.client.transactions import TransactionHandle


class WriteOwner(NamedTuple):
    """The query and run that a task writes for; ``two_phase`` transactions have no timeout."""

    query: str
    sink: str
    run: str
    two_phase: bool = True


class TaskCommit(WriterCommitMessage):
    """A task's result for the driver: its transaction, if it wrote anything."""

    def __init__(self, owner: WriteOwner, handle: "TransactionHandle | None", attempt: int) -> None:
        self.owner = owner
        self.handle = handle
        self.attempt = attempt
