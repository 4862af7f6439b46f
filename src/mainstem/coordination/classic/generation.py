"""A group's last complete generation: saved as a fact, restored from one, listed and described."""

from mainstem.coordination.classic.group import ClassicMember, Group, GroupState
from mainstem.coordination.groups.facts import GroupSaved, SavedMember
from mainstem.coordination.groups.requests import DescribedGroup, DescribedMember, ListedGroup


def save(group: Group, wall_ms: int, *, assignments: dict[str, bytes] | None = None) -> GroupSaved:
    """The generation as a fact, with ``assignments`` instead of the current ones if given."""
    return GroupSaved(
        group.id,
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol_name=group.protocol_name,
        leader=group.leader,
        state_ms=wall_ms,
        members=tuple(
            SavedMember(
                m.id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.rebalance_timeout_ms,
                m.session_timeout_ms,
                m.metadata(group.protocol_name),
                m.assignment if assignments is None else assignments.get(m.id, b""),
            )
            for m in group.members.values()
        ),
    )


def restore(group: Group, saved: GroupSaved) -> None:
    """Restore ``group`` from a saved fact. Known members keep the state that is not stored."""
    stored = dict.fromkeys(m.member_id for m in saved.members)
    for member_id in [m for m in group.members if m not in stored]:
        group.remove(member_id)
    group.protocol_type = saved.protocol_type
    group.protocol_name = saved.protocol_name
    group.generation = saved.generation
    for member in saved.members:
        _restore_member(group, member, saved)
    # The order decides which member leads: it has to be the same on every node that replays it.
    group.members = {m: group.members[m] for m in stored if m in group.members}
    group.protocol_type = saved.protocol_type or None
    if saved.leader in group.members:
        group.leader = saved.leader
    group.move(GroupState.STABLE if group.members else GroupState.EMPTY, saved.state_ms)
    group.is_saved = True
    group.note_subscriptions()


def _restore_member(group: Group, saved: SavedMember, generation: GroupSaved) -> None:
    protocols = ((generation.protocol_name or "", saved.subscription),)
    known = group.members.get(saved.member_id)
    if known is None:
        if saved.instance_id is not None and saved.instance_id in group.statics:
            group.remove(group.statics[saved.instance_id])
        member = ClassicMember(
            saved.member_id,
            saved.instance_id,
            saved.client_id,
            saved.client_host,
            saved.rebalance_timeout_ms,
            saved.session_timeout_ms,
            protocols,
            saved.assignment,
        )
        group.add(member, generation.protocol_type)
        return
    # A connected member has sent all its protocols; one from an older fact has only the stored one.
    if protocols[0] not in known.protocols:
        group.update(known, protocols)
    known.rebalance_timeout_ms = saved.rebalance_timeout_ms
    known.session_timeout_ms = saved.session_timeout_ms
    known.assignment = saved.assignment


def listed(group: Group) -> ListedGroup:
    """The entry of the group in a list of groups."""
    return ListedGroup(
        group.id,
        group.state.value,
        group.protocol_type or "",
        group.generation,
        len(group.members),
    )


def described(group: Group) -> DescribedGroup:
    """Describe the group; metadata and assignments are included once they are consistent."""
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group.id,
        group.state.value,
        group.protocol_type or "",
        (group.protocol_name or "") if stable else "",
        group.generation,
        group.leader or "",
        tuple(
            DescribedMember(
                m.id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.session_timeout_ms,
                m.rebalance_timeout_ms,
                m.metadata(group.protocol_name) if stable else b"",
                m.assignment if stable else b"",
            )
            for m in group.members.values()
        ),
    )
