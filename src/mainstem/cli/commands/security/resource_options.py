"""Options by which commands name resources and principals: for access rules and for roles."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

from mainstem.cli.errors import UsageFailure

CLUSTER_NAME = "kafka-cluster"


def operation_names() -> list[str]:
    """What a rule can allow or deny."""
    from mainstem.client.administration.acls import OPERATIONS

    return list(OPERATIONS)


Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="A topic, or *; may be repeated.")
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", "-g", help="A group, or *; may be repeated.")
]
TransactionalIds = Annotated[
    list[str] | None,
    typer.Option("--transactional-id", help="A transactional id, or *; may be repeated."),
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Others = Annotated[
    list[str] | None,
    typer.Option(
        "--resource", metavar="KIND=NAME", help="Anything else: user=NAME, delegation_token=ID."
    ),
]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        "-O",
        help="all, read, write, create, describe, ...; may be repeated.",
        autocompletion=operation_names,
    ),
]
Pattern = Annotated[
    str,
    typer.Option(
        "--pattern",
        help="How names are meant: literal, prefixed or glob.",
        autocompletion=lambda: ["literal", "prefixed", "glob"],
    ),
]


class Resource(NamedTuple):
    """A kind and a name."""

    kind: str
    name: str


def resources(
    *,
    topics: Sequence[str] | None,
    groups: Sequence[str] | None,
    transactional_ids: Sequence[str] | None,
    cluster: bool,
    others: Sequence[str] | None,
) -> list[Resource]:
    """All resources that the options name.

    Raises:
        UsageFailure: one has the wrong form.
    """
    found = [Resource("topic", name) for name in topics or ()]
    found += [Resource("group", name) for name in groups or ()]
    found += [Resource("transactional_id", name) for name in transactional_ids or ()]
    if cluster:
        found.append(Resource("cluster", CLUSTER_NAME))
    for text in others or ():
        kind, equals, name = text.partition("=")
        if not (kind and equals and name):
            raise UsageFailure(
                "a resource is a kind and a name", subject=text, remedy="--resource user=alice"
            )
        found.append(Resource(kind.lower().replace("-", "_"), name))
    return found


def principal(text: str) -> str:
    """``User:alice``, or ``alice`` for short."""
    return text if ":" in text else f"User:{text}"


def user_name(text: str) -> str:
    """``alice``, whether it was written so or as ``User:alice``."""
    return text.removeprefix("User:")
