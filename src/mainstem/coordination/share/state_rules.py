"""Rules for storing the states of share partitions.

Guarantees: a state from a former writer of a partition is refused, and so is one that is older than
the stored one, and one from before an administrator reset the offset. Decides; facts change the
group.
"""

from typing import Final

from mainstem.coordination.share.facts import (
    ShareFact,
    ShareState,
    ShareStateRemoved,
    ShareStateSaved,
)
from mainstem.coordination.share.group import ShareGroup, SharePartitionKey
from mainstem.coordination.share.partition import SavedSharePartition
from mainstem.model.errors import ErrorCode, Fenced
from mainstem.model.ids import TopicId

# More than the number of states that a writer can have in flight when it restarts.
VERSION_STEP: Final = 1_000_000


def taken_over(group: ShareGroup, place: SharePartitionKey, leader_epoch: int) -> list[ShareFact]:
    """Decide that the requesting writer may store states from now on.

    Raises:
        Fenced: a newer writer has taken over.
    """
    state = group.states.get(place)
    _check_writer(state, leader_epoch)
    if state is None:
        return []
    version = state.version + VERSION_STEP
    taken = ShareState(state.share, state.state_epoch, leader_epoch, version)
    return [ShareStateSaved(group.id, *place, taken)]


def stored(group: ShareGroup, place: SharePartitionKey, state: ShareState) -> list[ShareFact]:
    """Decide to store a state from the writer of the partition.

    Raises:
        Fenced: it is no longer the writer, or the offset was reset.
    """
    known = group.states.get(place)
    _check_writer(known, state.leader_epoch)
    if known is not None and state.version < known.version:
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            f"state version {state.version} is older than the stored version {known.version}",
            subject=group.id,
        )
    if known is not None and known.state_epoch != state.state_epoch:
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            f"state epoch {state.state_epoch} is not the current state epoch {known.state_epoch}",
            subject=group.id,
        )
    return [ShareStateSaved(group.id, *place, state)]


def moved(group: ShareGroup, place: SharePartitionKey, start: int) -> list[ShareFact]:
    """Decide to reset the start offset of a group in a partition."""
    known = group.states.get(place)
    if known is None:
        return [ShareStateSaved(group.id, *place, ShareState(SavedSharePartition(start)))]
    state = ShareState(
        SavedSharePartition(start), known.state_epoch + 1, known.leader_epoch, known.version
    )
    return [ShareStateSaved(group.id, *place, state)]


def forgotten(group: ShareGroup, topic: TopicId) -> list[ShareFact]:
    """Decide to delete the states of a group in a topic."""
    return [ShareStateRemoved(group.id, *place) for place in group.states if place[0] == topic]


def _check_writer(state: ShareState | None, leader_epoch: int) -> None:
    if state is not None and leader_epoch < state.leader_epoch:
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            f"leader epoch {leader_epoch} is older than the stored epoch {state.leader_epoch}",
        )
