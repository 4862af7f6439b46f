"""``mainstem transaction``: list, describe, show producers of a partition, abort a hanging one."""

from typing import Annotated

import typer

from mainstem.cli.login.admin_session import with_admin
from mainstem.cli.output.render import Output, show_confirmation, show_one, show_rows
from mainstem.cli.parameters.shared import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    OutputForm,
    TimeoutSeconds,
)
from mainstem.cli.parameters.timestamp import format_timestamp

app = typer.Typer(help="Transactions: what is open, since when and where.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="A transactional id.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Partition = Annotated[int, typer.Option("--partition", "-p", min=0, help="Partition of the topic.")]


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only ids in this state, such as Ongoing or Empty."),
    ] = None,
    longer_than: Annotated[
        float | None,
        typer.Option(
            "--longer-than", min=0, metavar="SECONDS", help="Only transactions open for longer."
        ),
    ] = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """List transactional ids."""
    longer_than_ms = -1 if longer_than is None else round(longer_than * 1000)
    found = with_admin(
        bootstrap,
        timeout,
        lambda admin: admin.transactions.list_all(state or [], longer_than_ms=longer_than_ms),
    )
    rows = [{"id": each.id, "state": each.state, "producer": each.producer_id} for each in found]
    show_rows(rows, output, columns=["id", "state", "producer"])


@app.command("describe")
def describe(
    name: Id,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Describe a transactional id: state, producer, start, partitions."""
    found = with_admin(bootstrap, timeout, lambda admin: admin.transactions.describe(name))
    facts: dict[str, object] = {
        "id": found.id,
        "state": found.state,
        "producer": found.producer_id,
        "epoch": found.epoch,
        "timeout_ms": found.timeout_ms,
        "started": None if found.start_ms < 0 else format_timestamp(found.start_ms),
        "partitions": [str(partition) for partition in found.partitions],
    }
    show_one(facts, output)


@app.command("producers")
def producers(
    topic: Topic,
    partition: Partition = 0,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show the producers of a partition, and the start offsets of their open transactions."""
    from mainstem.client.values import TopicPartition

    place = TopicPartition(topic, partition)
    found = with_admin(bootstrap, timeout, lambda admin: admin.transactions.producers(place))
    rows = [
        {
            "producer": each.producer_id,
            "epoch": each.epoch,
            "last_sequence": each.last_sequence,
            "last_written": format_timestamp(each.last_timestamp),
            "open_since_offset": each.transaction_start if each.transaction_start >= 0 else None,
        }
        for each in found
    ]
    columns = ["producer", "epoch", "last_sequence", "last_written", "open_since_offset"]
    show_rows(rows, output, columns=columns)


@app.command("abort")
def abort(
    topic: Topic,
    start_offset: Annotated[
        int, typer.Option("--start-offset", min=0, help="First offset of the hanging transaction.")
    ],
    partition: Partition = 0,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Abort a transaction in a partition that is unknown to its coordinator."""
    from mainstem.client.values import TopicPartition

    place = TopicPartition(topic, partition)
    ended = with_admin(
        bootstrap, timeout, lambda admin: admin.transactions.abort_hanging(place, start_offset)
    )
    show_confirmation(
        f"aborted the transaction of producer {ended.producer_id} in {place}",
        {"aborted": str(place), "producer": ended.producer_id, "epoch": ended.epoch},
        output,
    )
