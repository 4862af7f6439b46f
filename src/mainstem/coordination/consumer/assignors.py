"""Assignors of the coordinator: which member reads which partition (KIP-848).

    uniform   all members get equally many partitions, and keep what they have
    range     each topic is split into contiguous ranges; members get the same range of each topic

Pure. Guarantees: every partition of a topic that has subscribers is assigned to exactly one of
them; the result depends only on the arguments; where all members subscribe to the same topics,
``uniform`` assigns partition counts that differ by at most one and moves as few partitions as
that requires.
"""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from msgspec import Struct

from mainstem.model.ids import TopicId

Assignment = dict[TopicId, frozenset[int]]
TopicIdPartition = tuple[TopicId, int]

# Members with different subscriptions are balanced in rounds; each about halves the imbalance.
_ROUNDS_MAX = 16


class Subscriber(Struct, frozen=True):
    """A member as input of an assignor: its subscribed topics and its last target assignment."""

    topics: frozenset[TopicId]
    assigned: Mapping[TopicId, frozenset[int]] = {}
    instance_id: str | None = None


Subscribers = Mapping[str, Subscriber]
PartitionCounts = Mapping[TopicId, int]
Assignor = Callable[[Subscribers, PartitionCounts], dict[str, Assignment]]


def assign_range(members: Subscribers, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """Assign contiguous ranges of every topic; static members keep their order after a rejoin."""
    assignment: dict[str, Assignment] = {member_id: {} for member_id in members}
    readers: dict[TopicId, list[str]] = {topic: [] for topic in sorted(partition_counts)}
    for member_id in sorted(members, key=lambda m: _order(m, members[m])):
        for topic in members[member_id].topics:
            if topic in readers:
                readers[topic].append(member_id)
    for topic, ordered in readers.items():
        if not ordered:
            continue
        size, larger = divmod(partition_counts[topic], len(ordered))
        start = 0
        for place, member_id in enumerate(ordered):
            until = start + size + (place < larger)
            if until > start:
                assignment[member_id][topic] = frozenset(range(start, until))
            start = until
    return assignment


def assign_uniform(
    members: Subscribers, partition_counts: PartitionCounts
) -> dict[str, Assignment]:
    """Distribute all partitions evenly, moving as few as possible."""
    if not members:
        return {}
    first = next(iter(members.values())).topics
    if all(member.topics == first for member in members.values()):
        topics = [topic for topic in sorted(first) if topic in partition_counts]
        kept, free = _share_equally(members, topics, partition_counts)
        _hand_out(kept, free)
    else:
        kept = _share_by_subscription(members, partition_counts)
    return {member_id: _by_topic(places) for member_id, places in kept.items()}


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR: Final = "uniform"


def _order(member_id: str, member: Subscriber) -> tuple[bool, str]:
    if member.instance_id is None:
        return True, member_id
    return False, member.instance_id


def _still_valid(
    members: Subscribers, partition_counts: PartitionCounts
) -> tuple[dict[str, list[TopicIdPartition]], set[TopicIdPartition]]:
    """The partitions that each member may keep, and the set of all of them."""
    kept: dict[str, list[TopicIdPartition]] = {}
    taken: set[TopicIdPartition] = set()
    for member_id, member in members.items():
        places = kept[member_id] = []
        for topic, partitions in member.assigned.items():
            if topic not in member.topics:
                continue
            count = partition_counts.get(topic, 0)
            for partition in sorted(partitions):
                place = (topic, partition)
                if partition < count and place not in taken:
                    taken.add(place)
                    places.append(place)
    return kept, taken


def _share_equally(
    members: Subscribers, topics: list[TopicId], partition_counts: PartitionCounts
) -> tuple[dict[str, list[TopicIdPartition]], list[TopicIdPartition]]:
    """Revoke partitions beyond each member's share; returns what members keep and what is free."""
    kept, taken = _still_valid(members, partition_counts)
    quota, larger = divmod(sum(partition_counts[topic] for topic in topics), len(members))
    # Members with the most partitions get the shares that are larger by one: fewer move.
    for member_id in sorted(kept, key=lambda m: -len(kept[m])):
        places = kept[member_id]
        share = quota
        if larger and len(places) > quota:
            share += 1
            larger -= 1
        taken.difference_update(places[share:])
        del places[share:]
    free = [
        (topic, partition)
        for topic in topics
        for partition in range(partition_counts[topic])
        if (topic, partition) not in taken
    ]
    return kept, free


def _hand_out(kept: dict[str, list[TopicIdPartition]], free: list[TopicIdPartition]) -> None:
    """Assign each free partition to the subscriber with the fewest partitions."""
    least = [
        (len(places), turn, member_id) for turn, (member_id, places) in enumerate(kept.items())
    ]
    heapify(least)
    for place in free:
        size, turn, member_id = heappop(least)
        kept[member_id].append(place)
        heappush(least, (size + 1, turn, member_id))


def _share_by_subscription(
    members: Subscribers, partition_counts: PartitionCounts
) -> dict[str, list[TopicIdPartition]]:
    kept, taken = _still_valid(members, partition_counts)
    readers: dict[TopicId, list[str]] = {}
    for member_id, member in members.items():
        for topic in member.topics:
            if topic in partition_counts:
                readers.setdefault(topic, []).append(member_id)
    held = {member_id: _held(places) for member_id, places in kept.items()}
    loads = {member_id: len(places) for member_id, places in kept.items()}
    # Topics with few subscribers come first: they have the least choice.
    topics = sorted(readers, key=lambda topic: (len(readers[topic]), topic))
    for topic in topics:
        free = [p for p in range(partition_counts[topic]) if (topic, p) not in taken]
        _hand_out_topic(topic, free, readers[topic], held, loads)
    for _ in range(_ROUNDS_MAX):
        moved = [_level_topic(topic, readers[topic], held, loads) for topic in topics]
        if not any(moved):
            break
    return {
        member_id: [(topic, p) for topic, partitions in topics_held.items() for p in partitions]
        for member_id, topics_held in held.items()
    }


Held = dict[TopicId, list[int]]


def _held(places: list[TopicIdPartition]) -> Held:
    held: Held = {}
    for topic, partition in places:
        held.setdefault(topic, []).append(partition)
    return held


def _hand_out_topic(
    topic: TopicId,
    free: list[int],
    readers: list[str],
    held: dict[str, Held],
    loads: dict[str, int],
) -> None:
    if not free:
        return
    least = [(loads[member_id], turn, member_id) for turn, member_id in enumerate(readers)]
    heapify(least)
    for partition in free:
        load, turn, member_id = heappop(least)
        held[member_id].setdefault(topic, []).append(partition)
        loads[member_id] = load + 1
        heappush(least, (load + 1, turn, member_id))


def _level_topic(
    topic: TopicId, readers: list[str], held: dict[str, Held], loads: dict[str, int]
) -> bool:
    """Move partitions of one topic from the most to the least loaded member; whether any moved."""
    most = [(-loads[m], turn, m) for turn, m in enumerate(readers) if held[m].get(topic)]
    least = [(loads[m], turn, m) for turn, m in enumerate(readers)]
    heapify(most)
    heapify(least)
    moved = False
    while most:
        minus_load, turn, giver = heappop(most)
        load, other_turn, taker = heappop(least)
        # Loads change while both heaps are in use: outdated entries are pushed with the new load.
        if loads[taker] != load:
            heappush(least, (loads[taker], other_turn, taker))
            heappush(most, (minus_load, turn, giver))
            continue
        heappush(least, (load, other_turn, taker))
        if loads[giver] != -minus_load:
            heappush(most, (-loads[giver], turn, giver))
            continue
        if loads[giver] - load < 2:
            break
        held[taker].setdefault(topic, []).append(held[giver][topic].pop())
        loads[giver] -= 1
        loads[taker] += 1
        moved = True
        if held[giver][topic]:
            heappush(most, (-loads[giver], turn, giver))
    return moved


def _by_topic(places: list[TopicIdPartition]) -> Assignment:
    return {
        topic: frozenset(partitions) for topic, partitions in _held(places).items() if partitions
    }
