"""Which nodes hold a new partition: Kafka's round robin over the nodes, or what the caller says."""

from collections.abc import Sequence

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import NodeId
from mainstem.model.limits import PARTITIONS_PER_TOPIC_MAX
from mainstem.model.metadata import Node

Replicas = tuple[NodeId, ...]

NAMED_MAX = 10
"""A refusal repeats no more of what was sent than this."""


def place(
    nodes: Sequence[Node],
    *,
    first: int,
    partitions: int,
    replication_factor: int,
    assignments: Sequence[Replicas] | None = None,
) -> tuple[Replicas, ...]:
    """The replicas of partitions ``first`` and following, the writer of each in front.

    Raises:
        InvalidRequest: too many or too few partitions or replicas, an assignment that names nodes
            that do not exist or the same one twice.
    """
    count = partitions if assignments is None else len(assignments)
    if count < 1 or first + count > PARTITIONS_PER_TOPIC_MAX:
        raise InvalidRequest(
            ErrorCode.INVALID_PARTITIONS,
            f"{first + count} partitions; a topic has 1 to {PARTITIONS_PER_TOPIC_MAX}",
        )
    if assignments is not None:
        return _checked(nodes, assignments)
    if replication_factor < 1 or replication_factor > len(nodes):
        raise InvalidRequest(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} with {len(nodes)} nodes",
            remedy=f"use 1 to {len(nodes)}, or -1 for the default",
        )
    ids = sorted(node.id for node in nodes)
    return tuple(
        tuple(ids[(first + at + copy) % len(ids)] for copy in range(replication_factor))
        for at in range(count)
    )


def _checked(nodes: Sequence[Node], assignments: Sequence[Replicas]) -> tuple[Replicas, ...]:
    known = {node.id for node in nodes}
    for replicas in assignments:
        if (
            not replicas
            or len(set(replicas)) != len(replicas)
            or len(replicas) != len(assignments[0])
            or not set(replicas) <= known
        ):
            raise InvalidRequest(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"replicas {list(replicas[:NAMED_MAX])}: each partition needs the same number of "
                f"different nodes out of {sorted(known)}",
            )
    return tuple(tuple(replicas) for replicas in assignments)
