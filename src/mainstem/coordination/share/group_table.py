"""Shard: the share groups of one internal stream.

Requests are decided on the current state and change nothing; the facts of a decision are stored
and replayed, then the decision is settled: deadlines and the next wake-up time are set.

Guarantees: group epochs only grow; ``replay`` rebuilds exactly what was stored.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mainstem.coordination.consumer.facts import NOTHING, Partitions
from mainstem.coordination.consumer.topics import GroupTopics
from mainstem.coordination.shards.state_machine import Instant
from mainstem.coordination.share.assignor import assign
from mainstem.coordination.share.configs import ShareConfigs
from mainstem.coordination.share.facts import (
    ShareEpochMoved,
    ShareFact,
    ShareFactRemoved,
    ShareKind,
    ShareMemberSaved,
    ShareStateRemoved,
)
from mainstem.coordination.share.group import ShareGroup, not_a_share_group
from mainstem.coordination.share.requests import ShareAnswer, ShareHeartbeat
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.model.ids import TopicId
from mainstem.model.limits import GROUP_NAME_LENGTH_MAX, MIB

JOINING = 0
LEFT = -1
MEMBER_BYTES_MAX = MIB // 2
"""Limit of one member's subscription: its record has to fit a batch of the internal topic."""


class ShareDecision(Struct, frozen=True, kw_only=True):
    """Facts to store, and the consequences once they are replayed."""

    group_id: str
    facts: Sequence[ShareFact] = ()
    reply: ShareAnswer | None = None
    refreshed_member: str | None = None
    target: Mapping[str, Partitions] | None = None


class ShareGroupTable:
    """The share groups of one shard."""

    def __init__(self, configs: ShareConfigs, topics: GroupTopics) -> None:
        self.configs = configs
        self._topics = topics
        self._groups: dict[str, ShareGroup] = {}

    def get(self, group_id: str) -> ShareGroup | None:
        """The group with that id, or None."""
        return self._groups.get(group_id)

    def known(self, group_id: str) -> ShareGroup:
        """The group with that id.

        Raises:
            InvalidRequest: it does not exist.
        """
        group = self._groups.get(group_id)
        if group is None:
            raise not_a_share_group(group_id, "the share group does not exist")
        return group

    def __iter__(self) -> Iterator[ShareGroup]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def heartbeat(self, request: ShareHeartbeat) -> ShareDecision:
        """Decide a heartbeat that joins, stays or leaves."""
        _check(request)
        group = self._groups.get(request.group_id)
        if request.epoch == LEFT:
            member = _member(group, request)
            return self._without(self.known(request.group_id), [member.member_id], LEFT)
        if request.epoch == JOINING:
            group = group or ShareGroup(request.group_id)
            before = group.members.get(request.member_id)
        else:
            before = _member(group, request)
            group = self.known(request.group_id)
            if request.epoch > group.epoch:
                raise Fenced(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    f"member epoch {request.epoch} is ahead of the group epoch {group.epoch}",
                    subject=group.id,
                )
        if before is None and len(group.members) >= self.configs.settings.members_max:
            raise InvalidRequest(
                ErrorCode.GROUP_FULL, f"{len(group.members)} members", subject=group.id
            )
        return self._live(group, before, request)

    def on_time(self, group_id: str, now: Instant) -> ShareDecision | None:
        """Decide to remove the members whose session has ended; None if there are none."""
        group = self._groups.get(group_id)
        if group is None:
            return None
        due = [m for m, at_ms in group.deadlines_ms.items() if at_ms <= now.monotonic_ms]
        return self._without(group, due, LEFT) if due else None

    def settle(self, decision: ShareDecision, now: Instant) -> int | None:
        """Set deadlines once the facts of a decision are replayed; returns the wake-up time."""
        group = self._groups.get(decision.group_id)
        if group is None:
            return None
        if decision.target is not None:
            group.target = decision.target
            group.is_stale = False
        if decision.refreshed_member is not None:
            self._expect(group, decision.refreshed_member, now)
            if decision.reply is not None:
                group.sent_epochs[decision.refreshed_member] = decision.reply.epoch
        return group.next_ms()

    def loaded(self, now: Instant) -> dict[str, int | None]:
        """Start the session timeouts after loading; returns the wake-up time of each group."""
        for group in self:
            for member_id in group.members:
                self._expect(group, member_id, now)
        return {group.id: group.next_ms() for group in self}

    def replay(self, fact: ShareFact) -> None:
        """Apply a stored fact."""
        if isinstance(fact, ShareFactRemoved) and fact.kind is ShareKind.EPOCH:
            self._groups.pop(fact.group_id, None)
            return
        group = self._groups.get(fact.group_id)
        if group is None:
            if isinstance(fact, ShareFactRemoved | ShareStateRemoved):
                return
            group = self._groups[fact.group_id] = ShareGroup(fact.group_id)
        group.replay(fact)

    def topic_changed(self, name: str) -> None:
        """Mark the groups that read a changed topic as stale until their next heartbeat."""
        for group in self:
            if group.reads(name):
                group.is_stale = True

    def knows(self, topic: TopicId) -> bool:
        """Whether the topic exists."""
        return self._topics.name_of(topic) is not None

    def gone(self) -> list[ShareFact]:
        """Decide to delete the states of partitions of deleted topics."""
        return [
            ShareStateRemoved(group.id, *place)
            for group in self
            for place in group.states
            if not self.knows(place[0])
        ]

    def removal(self, group: ShareGroup) -> list[ShareFact]:
        """Decide to delete a group without members, with the states of its partitions."""
        forgotten: list[ShareFact] = [ShareStateRemoved(group.id, *p) for p in group.states]
        return [*forgotten, ShareFactRemoved(ShareKind.EPOCH, group.id)]

    def _live(
        self, group: ShareGroup, before: ShareMemberSaved | None, request: ShareHeartbeat
    ) -> ShareDecision:
        member = _as_requested(before, request)
        members = {**group.members, member.member_id: member}
        facts: list[ShareFact] = [] if member == before else [member]
        moves = before is None or member.topics != before.topics
        epoch, target = group.epoch, group.target
        is_new_target = moves or group.is_stale or member.member_id not in target
        if is_new_target:
            names = {name for each in members.values() for name in each.topics}
            topics_hash = self._topics.hash(names)
            if moves or topics_hash != group.topics_hash:
                epoch += 1
                facts.append(ShareEpochMoved(group.id, epoch, topics_hash))
            target = self._targets(members)
        is_sent = request.topics is not None or request.epoch != epoch or is_new_target
        return ShareDecision(
            group_id=group.id,
            facts=facts,
            reply=ShareAnswer(
                member.member_id,
                epoch,
                self.configs.heartbeat_interval_ms(group.id),
                target.get(member.member_id, NOTHING) if is_sent else None,
            ),
            refreshed_member=member.member_id,
            target=target if is_new_target else None,
        )

    def _without(
        self, group: ShareGroup, member_ids: Sequence[str], reply_epoch: int
    ) -> ShareDecision:
        stay = {m: each for m, each in group.members.items() if m not in member_ids}
        names = {name for each in stay.values() for name in each.topics}
        return ShareDecision(
            group_id=group.id,
            facts=[
                *(ShareFactRemoved(ShareKind.MEMBER, group.id, m) for m in member_ids),
                ShareEpochMoved(group.id, group.epoch + 1, self._topics.hash(names)),
            ],
            reply=ShareAnswer(member_ids[0], reply_epoch),
            target=self._targets(stay),
        )

    def _targets(self, members: Mapping[str, ShareMemberSaved]) -> dict[str, Partitions]:
        counts = self._topics.ids({name for m in members.values() for name in m.topics})
        subscriptions = {m: frozenset(self._topics.ids(each.topics)) for m, each in members.items()}
        return {**assign(subscriptions, counts)}

    def _expect(self, group: ShareGroup, member_id: str, now: Instant) -> None:
        session_ms = self.configs.session_timeout_ms(group.id)
        group.deadlines_ms[member_id] = now.monotonic_ms + session_ms


def _check(request: ShareHeartbeat) -> None:
    for text, name in ((request.member_id, "member id"), (request.rack_id, "rack")):
        if text is not None and not 0 < len(text) <= GROUP_NAME_LENGTH_MAX:
            raise _invalid(f"the {name} must have 1 to {GROUP_NAME_LENGTH_MAX} characters", request)
    if request.epoch < LEFT:
        raise _invalid(f"invalid member epoch {request.epoch}", request)
    if request.epoch == JOINING and not request.topics:
        raise _invalid("a joining member must send its subscription", request)
    text_bytes = sum(map(len, request.topics or ())) + len(request.client_id)
    if text_bytes > MEMBER_BYTES_MAX:
        raise _invalid(f"a subscription of {text_bytes} bytes is too large", request)


def _member(group: ShareGroup | None, request: ShareHeartbeat) -> ShareMemberSaved:
    member = None if group is None else group.members.get(request.member_id)
    if member is None:
        raise Fenced(
            ErrorCode.UNKNOWN_MEMBER, f"no member {request.member_id!r}", subject=request.group_id
        )
    return member


def _as_requested(before: ShareMemberSaved | None, request: ShareHeartbeat) -> ShareMemberSaved:
    topics = request.topics
    return ShareMemberSaved(
        request.group_id,
        request.member_id,
        request.rack_id if before is None or request.rack_id is not None else before.rack_id,
        request.client_id,
        request.client_host,
        (before.topics if before else ()) if topics is None else tuple(sorted(set(topics))),
    )


def _invalid(cause: str, request: ShareHeartbeat) -> InvalidRequest:
    return InvalidRequest(ErrorCode.INVALID_REQUEST, cause, subject=request.group_id)
