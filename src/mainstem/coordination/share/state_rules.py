"""Where a share group stands in its partitions: what may be stored about that, and by whom.

Promises: a state that a former writer of a partition wants to store is refused, and so is one that
was overtaken on its way here, and one from before an administrator let the group stand elsewhere.
Decides; facts change the group.
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

# Beyond all that a writer can have on its way when it begins anew.
VERSION_STEP: Final = 1_000_000


def taken_over(group: ShareGroup, place: SharePartitionKey, leader_epoch: int) -> list[ShareFact]:
    """Decide who may store from now on: the writer of the partition that asks.

    Raises:
        Fenced: a newer writer has asked already.
    """
    state = group.states.get(place)
    _check_writer(state, leader_epoch)
    if state is None:
        return []
    version = state.version + VERSION_STEP
    taken = ShareState(state.share, state.state_epoch, leader_epoch, version)
    return [ShareStateSaved(group.id, *place, taken)]


def stored(group: ShareGroup, place: SharePartitionKey, state: ShareState) -> list[ShareFact]:
    """Decide what the writer of the partition wants to be stored.

    Raises:
        Fenced: it is not the writer any more, or the group was moved.
    """
    known = group.states.get(place)
    _check_writer(known, state.leader_epoch)
    if known is not None and state.version < known.version:
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            f"state {state.version} where {known.version} is stored",
            subject=group.id,
        )
    if known is not None and known.state_epoch != state.state_epoch:
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            f"state epoch {state.state_epoch} where {known.state_epoch} holds",
            subject=group.id,
        )
    return [ShareStateSaved(group.id, *place, state)]


def moved(group: ShareGroup, place: SharePartitionKey, start: int) -> list[ShareFact]:
    """Decide that a group stands elsewhere."""
    known = group.states.get(place)
    if known is None:
        return [ShareStateSaved(group.id, *place, ShareState(SavedSharePartition(start)))]
    state = ShareState(
        SavedSharePartition(start), known.state_epoch + 1, known.leader_epoch, known.version
    )
    return [ShareStateSaved(group.id, *place, state)]


def forgotten(group: ShareGroup, topic: TopicId) -> list[ShareFact]:
    """Decide to forget where a group stands in a topic."""
    return [ShareStateRemoved(group.id, *place) for place in group.states if place[0] == topic]


def _check_writer(state: ShareState | None, leader_epoch: int) -> None:
    if state is not None and leader_epoch < state.leader_epoch:
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            f"epoch {leader_epoch} where {state.leader_epoch} has written",
        )
