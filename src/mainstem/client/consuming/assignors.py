"""Assignors that divide partitions among members: range and round robin, as in Kafka's consumers.

Pure. Guarantees: every partition of a subscribed topic goes to exactly one member that subscribed
to it; the result depends only on the arguments.
"""

from collections.abc import Callable, Mapping
from itertools import cycle, islice
from typing import Final, NamedTuple

from mainstem.client.values import TopicPartition


class SubscribedMember(NamedTuple):
    """One member and what it subscribed to; a static member is ordered by its instance id."""

    id: str
    instance_id: str | None
    topics: frozenset[str]


Assignment = dict[str, list[TopicPartition]]
Assignor = Callable[[list[SubscribedMember], Mapping[str, int]], Assignment]


def assign_range(
    members: list[SubscribedMember], partition_counts: Mapping[str, int]
) -> Assignment:
    """Divides each topic into contiguous parts, the first ones larger by one if needed."""
    assignment: Assignment = {member.id: [] for member in members}
    ordered = sorted(members, key=_order)
    for topic in sorted(partition_counts):
        readers = [member for member in ordered if topic in member.topics]
        if not readers:
            continue
        size, larger = divmod(partition_counts[topic], len(readers))
        start = 0
        for place, member in enumerate(readers):
            until = start + size + (1 if place < larger else 0)
            assignment[member.id] += [TopicPartition(topic, index) for index in range(start, until)]
            start = until
    return assignment


def assign_round_robin(
    members: list[SubscribedMember], partition_counts: Mapping[str, int]
) -> Assignment:
    """Assigns all partitions in order to the members in turn, skipping non-subscribers."""
    assignment: Assignment = {member.id: [] for member in members}
    turns = cycle(sorted(members, key=_order))
    for topic in sorted(partition_counts):
        if not any(topic in member.topics for member in members):
            continue
        for index in range(partition_counts[topic]):
            # Within one round there is a member that subscribed to the topic.
            member = next(m for m in islice(turns, len(members)) if topic in m.topics)
            assignment[member.id].append(TopicPartition(topic, index))
    return assignment


ASSIGNORS: Final[dict[str, Assignor]] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
}


def _order(member: SubscribedMember) -> tuple[bool, str]:
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member.id
