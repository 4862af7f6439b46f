"""Assignor of share groups: every member gets partitions, every partition has a member.

With fewer members than partitions each partition has one member; with more, members share
partitions. Partitions need not be revoked before another member gets them, so the previous
assignment is not kept. Pure; the result depends only on the arguments.
"""

from collections.abc import Mapping

from mainstem.model.ids import TopicId

SIMPLE = "simple"

ShareAssignedPartition = tuple[TopicId, int]


def assign(
    members: Mapping[str, frozenset[TopicId]], partition_counts: Mapping[TopicId, int]
) -> dict[str, dict[TopicId, frozenset[int]]]:
    """The partitions of each member, given the subscriptions."""
    given: dict[str, dict[TopicId, set[int]]] = {member_id: {} for member_id in members}
    subscriptions = set(members.values())
    # Members with equal subscriptions share all topics; otherwise each topic is shared by readers.
    shared = (
        list(subscriptions)
        if len(subscriptions) == 1
        else [frozenset({t}) for t in sorted(partition_counts)]
    )
    turn = 0
    for topics in shared:
        readers = [m for m in sorted(members) if topics <= members[m]]
        places = [(t, p) for t in sorted(topics) for p in range(partition_counts.get(t, 0))]
        if not readers or not places:
            continue
        for at in range(max(len(readers), len(places))):
            topic, partition = places[at % len(places)]
            reader = readers[(at + turn) % len(readers)]
            given[reader].setdefault(topic, set()).add(partition)
        # The next topic starts with the reader after the last, or the first would get most.
        turn += len(places)
    return {
        member_id: {topic: frozenset(found) for topic, found in places.items()}
        for member_id, places in given.items()
    }
