"""Any course of joins, syncs, departures, silence, full disks and restarts keeps a group sound."""

from collections.abc import Callable
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)
from tests.kit.simulation.coordination.group_simulator import GroupSimulator

from mainstem.coordination.classic.generation import save
from mainstem.coordination.classic.group import Group, GroupState
from mainstem.coordination.groups.facts import GroupSaved
from mainstem.coordination.groups.requests import (
    CommitRequest,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    OffsetToCommit,
    SyncAnswer,
    SyncRequest,
)
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.groups.shard import GroupShard
from mainstem.model.errors import ErrorCode, MainstemError

G = "g"
T = TypeVar("T")
PROTOCOLS = st.lists(st.sampled_from(["range", "sticky", "cooperative"]), min_size=1, unique=True)


class GroupMachine(RuleBasedStateMachine):
    """Plays clients against a shard and remembers what it promised them."""

    member_ids = Bundle("member_ids")

    @initialize(
        delay_ms=st.sampled_from([0, 3_000]),
        members_max=st.integers(1, 4),
        session_ms=st.integers(6_000, 30_000),
        rebalance_ms=st.integers(0, 60_000),
    )
    def begin(self, delay_ms: int, members_max: int, session_ms: int, rebalance_ms: int) -> None:
        self.sim = GroupSimulator(
            GroupSettings(initial_rebalance_delay_ms=delay_ms, members_max=members_max)
        )
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.generation = 0
        self.leaders: dict[int, str] = {}
        self.seen = 0
        self.assigned: dict[tuple[int, str], bytes] = {}
        self.awaits: dict[int, tuple[int, str]] = {}
        self.open: set[int] = set()
        self.committed: dict[tuple[str, int], int] = {}

    def attempt(self, act: Callable[[], T], refusals: set[ErrorCode]) -> T | None:
        try:
            return act()
        except MainstemError as refusal:
            if refusal.code not in refusals:
                raise
            return None

    @property
    def group(self) -> Group | None:
        return self.sim.shard.groups.get(G)

    @rule(
        target=member_ids,
        instance=st.sampled_from([None, None, "i", "j"]),
        protocols=PROTOCOLS,
        id_required=st.booleans(),
        skips=st.booleans(),
    )
    def join_new(
        self, instance: str | None, protocols: list[str], id_required: bool, skips: bool
    ) -> object:
        before = set(self.group.members if self.group else ())
        self.join("", instance, protocols, id_required=id_required, skips=skips)
        group = self.group
        if group is None:
            return multiple()
        return multiple(*(set(group.members) - before), *group.pending)

    @rule(member_id=member_ids, protocols=PROTOCOLS)
    def rejoin(self, member_id: str, protocols: list[str]) -> None:
        self.join(member_id, None, protocols, id_required=True, skips=False)

    def join(
        self,
        member_id: str,
        instance: str | None,
        protocols: list[str],
        *,
        id_required: bool,
        skips: bool,
    ) -> None:
        request = JoinRequest(
            group_id=G,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            protocol_type="consumer",
            protocols=tuple((name, b"m" * (len(name) % 5)) for name in protocols),
            member_id=member_id,
            instance_id=instance,
            client_id="c",
            id_required=id_required,
            may_skip_assignment=skips,
        )
        ticket = self.attempt(
            lambda: self.sim.join(request),
            {ErrorCode.UNKNOWN_MEMBER, ErrorCode.INCONSISTENT_PROTOCOL},
        )
        if ticket is not None:
            self.open.add(ticket)

    @rule(member_id=member_ids, share=st.binary(max_size=3), current=st.booleans())
    def sync(self, member_id: str, share: bytes, current: bool) -> None:
        group = self.group
        number = group.generation if group and current else 1
        assignments = tuple((m, share + m.encode()) for m in (group.members if group else ()))
        request = SyncRequest(
            group_id=G, generation=number, member_id=member_id, assignments=assignments
        )
        state, leads = (group.state, group.leader == member_id) if group else (None, False)
        stored = len(self.sim.stored)
        ticket = self.attempt(
            lambda: self.sim.sync(request),
            {
                ErrorCode.UNKNOWN_MEMBER,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.REBALANCE_IN_PROGRESS,
            },
        )
        if ticket is None:
            return
        self.open.add(ticket)
        self.awaits[ticket] = (number, member_id)
        if state is GroupState.COMPLETING and leads and len(self.sim.stored) > stored:
            self.assigned = {(number, name): assignment for name, assignment in assignments}

    @rule(protocols=PROTOCOLS)
    def everybody_joins(self, protocols: list[str]) -> None:
        for member_id in list(self.group.members if self.group else ()):
            self.rejoin(member_id, protocols)

    @rule(share=st.binary(max_size=3), leader_first=st.booleans())
    def everybody_syncs(self, share: bytes, leader_first: bool) -> None:
        group = self.group
        if group is not None:
            first = group.leader if leader_first else None
            for member_id in sorted(group.members, key=lambda m: m != first):
                self.sync(member_id, share, current=True)

    @rule(member_id=member_ids)
    def heartbeat(self, member_id: str) -> None:
        group = self.group
        request = HeartbeatRequest(
            group_id=G, generation=group.generation if group else 0, member_id=member_id
        )
        self.attempt(
            lambda: self.sim.heartbeat(request),
            {ErrorCode.UNKNOWN_MEMBER, ErrorCode.REBALANCE_IN_PROGRESS},
        )

    @rule(member_id=consumes(member_ids))
    def leave(self, member_id: str) -> None:
        if self.group is not None:
            [outcome] = self.sim.leave(G, [LeavingMember(member_id)])
            assert outcome in (None, ErrorCode.UNKNOWN_MEMBER)
            assert member_id not in self.group.members

    @rule(member_id=member_ids, partition=st.integers(0, 2), offset=st.integers(0, 99))
    def commit(self, member_id: str, partition: int, offset: int) -> None:
        group = self.group
        request = CommitRequest(
            group_id=G,
            member_id=member_id,
            generation=group.generation if group else -1,
            offsets=(OffsetToCommit("t", partition, offset),),
        )
        try:
            assert self.sim.commit(request) == [None]
        except MainstemError:
            return
        self.committed["t", partition] = offset

    @rule(by_ms=st.integers(1, 40_000))
    def wait(self, by_ms: int) -> None:
        self.sim.advance(by_ms)

    @rule(full=st.booleans())
    def disk(self, full: bool) -> None:
        self.sim.is_full = full

    @rule()
    def restart(self) -> None:
        self.sim.restart()
        self.sim.answers.clear()
        self.awaits.clear()
        self.open.clear()
        self.assigned.clear()
        self.leaders.clear()
        self.seen = 0
        self.generation = self.group.generation if self.group else 0

    @invariant()
    def generations_only_grow(self) -> None:
        if self.group is not None:
            assert self.group.generation >= self.generation
            self.generation = self.group.generation

    @invariant()
    def one_member_leads(self) -> None:
        group = self.group
        if group is None:
            return
        assert (group.leader in group.members) if group.members else group.leader is None
        for answer in list(self.sim.answers.values())[self.seen :]:
            if isinstance(answer, JoinAnswer) and answer.members and not answer.skip_assignment:
                assert answer.member_id == answer.leader
                known = self.leaders.setdefault(answer.generation, answer.leader)
                assert known == answer.leader
        self.seen = len(self.sim.answers)

    @invariant()
    def members_get_what_their_leader_assigned(self) -> None:
        for ticket, (number, member_id) in list(self.awaits.items()):
            answer = self.sim.answers.get(ticket)
            if answer is not None:
                del self.awaits[ticket]
            if isinstance(answer, SyncAnswer) and (number, member_id) in self.assigned:
                assert answer.assignment == self.assigned[number, member_id]

    @invariant()
    def parked_requests_belong_to_members(self) -> None:
        group = self.group
        if group is None:
            assert self.open <= set(self.sim.answers)
            return
        members = group.members.values()
        parked = {t for m in members for t in (m.join_ticket, m.sync_ticket) if t is not None}
        assert parked == self.open - set(self.sim.answers)
        for member in members:
            assert member.sync_ticket is None or group.state is GroupState.COMPLETING
            if not member.is_new and not member.is_excused:
                assert member.deadline_ms is not None
                assert self.sim.now_ms < member.deadline_ms <= self.sim.now_ms + self.session_ms
        assert group.awaiting_join == sum(m.join_ticket is not None for m in members)
        assert group.statics == {m.instance_id: m.id for m in members if m.instance_id}
        assert group.size_bytes == sum(m.size_bytes for m in members)
        assert group.unsynced <= set(group.members)
        assert len(group.members) <= self.sim.settings.members_max or group.state in (
            GroupState.PREPARING,
            GroupState.STABLE,
        )

    @invariant()
    def replay_rebuilds_what_was_stored(self) -> None:
        rebuilt = self.sim.rebuilt()
        positions = {k: kept.offset for k, kept in self.sim.shard.offsets.of(G).items()}
        assert positions == self.committed
        assert rebuilt.offsets.of(G) == self.sim.shard.offsets.of(G)
        last = next((f for f in reversed(self.sim.stored) if isinstance(f, GroupSaved)), None)
        group = self.group
        if last is not None:
            assert generation_of(rebuilt) == last
            if group is not None and group.state is GroupState.STABLE:
                assert save(group, last.state_ms) == last

    def teardown(self) -> None:
        """When everybody falls silent the group empties and nobody is left waiting."""
        if not hasattr(self, "sim"):
            return
        self.sim.is_full = False
        self.sim.advance(10 * 60_000)
        if self.group is not None:
            assert self.group.state is GroupState.EMPTY
            assert not self.group.pending
            assert not self.group.members
        assert self.open <= set(self.sim.answers)


def generation_of(shard: GroupShard) -> GroupSaved:
    group = shard.groups.get(G)
    assert group is not None
    for member in group.members.values():
        assert [name for name, _ in member.protocols] == [group.protocol_name]
    return save(group, group.state_ms)


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
