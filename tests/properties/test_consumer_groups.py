"""Any course of members of both protocols, topics, lost answers, full disks and restarts.

Promises: no partition is read by two members at once; what is stored rebuilds the group; once
everybody talks to the coordinator again, every partition is read by exactly one of its readers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.kit.simulation.coordination.consumer_group_script import subscription_bytes
from tests.kit.simulation.coordination.group_simulator import GroupSimulator
from tests.kit.simulation.coordination.topic_list import TopicList

from mainstem.coordination.classic.consumer_protocol import assignment_bytes, read_assignment
from mainstem.coordination.consumer.facts import Partitions
from mainstem.coordination.consumer.group import ConsumerGroup
from mainstem.coordination.consumer.requests import ConsumerAnswer, ConsumerHeartbeat
from mainstem.coordination.groups.requests import (
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
)
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.ids import TopicId

G = "g"
T = TypeVar("T")
Place = tuple[TopicId, int]
NAMES = ("t", "u", "app.v")
TOPICS = st.sampled_from([("t",), ("t", "u"), ("app.v", "t", "u"), ("u",), ()])
BEGIN_ANEW = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER,
    ErrorCode.FENCED_MEMBER,
    ErrorCode.UNKNOWN_GROUP,
}
STORED = (
    "epoch",
    "topics_hash",
    "target_epoch",
    "members",
    "target",
    "patterns",
    "statics",
    "size_bytes",
    "classic_members",
    "_owners",
    "_readers",
    "_users",
)
TRY_AGAIN = {ErrorCode.COORDINATOR_UNAVAILABLE, ErrorCode.UNRELEASED_INSTANCE, ErrorCode.GROUP_FULL}


def places(partitions: Partitions) -> set[Place]:
    return {(topic, p) for topic, found in partitions.items() for p in found}


@dataclass
class Client:
    """A process that reads: what it was told and what it has."""

    id: str
    topics: tuple[str, ...]
    pattern: str | None = None
    instance: str | None = None
    assignor: str | None = None
    epoch: int = 0
    is_sure: bool = False
    assignment: Partitions = field(default_factory=dict)
    reads: set[Place] = field(default_factory=set)
    # Classic ones only.
    join_ticket: int | None = None
    sync_ticket: int | None = None

    def begin_anew(self) -> None:
        self.epoch, self.assignment, self.reads, self.is_sure = 0, {}, set(), False
        self.join_ticket = self.sync_ticket = None

    def owned(self) -> Partitions:
        return {t: frozenset(p for topic, p in self.reads if topic == t) for t, _ in self.reads}


class Handovers(RuleBasedStateMachine):
    """Members that the coordinator assigns come, go, lose answers and take their time."""

    @initialize(
        session_ms=st.integers(6_000, 45_000),
        policy=st.sampled_from(["bidirectional", "bidirectional", "upgrade", "downgrade"]),
        members_max=st.integers(2, 6),
        patience_ms=st.integers(1_000, 60_000),
    )
    def begin(self, session_ms: int, policy: str, members_max: int, patience_ms: int) -> None:
        self.topics = TopicList({"t": 4, "u": 1})
        self.sim = GroupSimulator(
            GroupSettings(
                initial_rebalance_delay_ms=0,
                consumer_session_timeout_ms=session_ms,
                consumer_members_max=members_max,
                consumer_migration_policy=policy,
            ),
            self.topics,
        )
        self.patience_ms = patience_ms
        self.consumers: list[Client] = []
        self.classics: list[Client] = []
        self.named = 0
        self.epochs: dict[int, int] = {}

    @property
    def group(self) -> ConsumerGroup | None:
        return self.sim.shard.consumers.get(G)

    def attempt(self, client: Client, act: Callable[[], T]) -> T | None:
        try:
            return act()
        except MainstemError as refusal:
            if refusal.code in BEGIN_ANEW:
                client.begin_anew()
            elif refusal.code not in TRY_AGAIN:
                raise
            return None

    def new_name(self, prefix: str) -> str:
        self.named += 1
        return f"{prefix}{self.named}"

    @rule(
        topics=TOPICS,
        pattern=st.sampled_from([None, None, ".*", "app[.].*"]),
        instance=st.sampled_from([None, None, "i", "j"]),
        assignor=st.sampled_from([None, "uniform", "range"]),
    )
    def start_consumer(
        self,
        topics: tuple[str, ...],
        pattern: str | None,
        instance: str | None,
        assignor: str | None,
    ) -> None:
        client = Client(self.new_name("m"), topics, pattern, instance, assignor)
        self.consumers.append(client)
        self.beat(client, loses=False, says=True)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), loses=st.booleans(), says=st.booleans(), follows=st.booleans())
    def consumer_lives(self, data: st.DataObject, loses: bool, says: bool, follows: bool) -> None:
        client = data.draw(st.sampled_from(self.consumers))
        self.beat(client, loses=loses, says=says)
        if follows:
            self.follow(client)

    @rule(follows=st.booleans())
    def all_consumers_live(self, follows: bool) -> None:
        for client in self.consumers:
            self.beat(client, loses=False, says=follows)
            if follows:
                self.follow(client)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), for_good=st.booleans())
    def consumer_leaves(self, data: st.DataObject, for_good: bool) -> None:
        client = data.draw(st.sampled_from(self.consumers))
        # A static client that steps out is another process when it comes back.
        epoch = -1 if for_good or client.instance is None else -2
        client.reads = set()
        if client.epoch:
            self.attempt(client, lambda: self.heartbeat(client, epoch, full=False))
        self.consumers.remove(client)

    def heartbeat(self, client: Client, epoch: int, *, full: bool) -> ConsumerAnswer:
        return self.sim.consumer_heartbeat(
            ConsumerHeartbeat(
                group_id=G,
                member_id=client.id,
                epoch=epoch,
                instance_id=client.instance,
                rebalance_timeout_ms=self.patience_ms if full else -1,
                topics=client.topics if full else None,
                pattern=client.pattern if full else None,
                assignor=client.assignor,
                owned=client.owned() if full else None,
                makes_id=True,
            )
        )

    def beat(self, client: Client, *, loses: bool, says: bool) -> None:
        if client.epoch == 0:
            client.reads = set()
        # After anything unexpected a client says all that it knows.
        full = says or not client.is_sure
        if full and client.epoch > 0:
            # It first takes what it was given: the protocol has no word for "about to take".
            client.reads |= places(client.assignment)
        client.is_sure = False
        answer = self.attempt(client, lambda: self.heartbeat(client, client.epoch, full=full))
        if answer is None or loses:
            return
        client.is_sure = True
        client.epoch = answer.epoch
        if answer.assigned is not None:
            client.assignment = answer.assigned

    def follow(self, client: Client) -> None:
        """First gives up, then takes: both before it says so."""
        client.reads = places(client.assignment) if client.epoch > 0 else set()

    def members(self) -> list[Client]:
        """Clients that the coordinator takes for members."""
        group, classic = self.group, self.sim.shard.groups.get(G)
        known = group.members if group else classic.members if classic else {}
        return [c for c in (*self.consumers, *self.classics) if c.id in known and c.epoch > 0]

    @invariant()
    def no_partition_is_read_by_two_members(self) -> None:
        seen: dict[Place, str] = {}
        for client in self.members():
            for place in client.reads:
                assert place not in seen, f"{client.id} and {seen[place]} read {place}"
                seen[place] = client.id

    @invariant()
    def a_group_is_of_one_kind_and_its_parts_agree(self) -> None:
        group = self.group
        if group is None:
            return
        assert self.sim.shard.groups.get(G) is None
        assert group.target_epoch <= group.epoch
        assert len(group.members) <= self.sim.settings.consumer_members_max
        assert group.timers.keys() == group.members.keys()
        for member in group.members.values():
            assert member.epoch <= group.epoch
            held = places(member.assigned) | places(member.revoking)
            assert all(group.owner(*place) == member.id for place in held)
            if member.has_arrived(group.target_epoch):
                assert member.assigned == group.target[member.id]

    @invariant()
    def replay_rebuilds_what_was_stored(self) -> None:
        group, rebuilt = self.group, self.sim.rebuilt().consumers.get(G)
        if group is None or rebuilt is None:
            assert group is rebuilt
            return
        for name in STORED:
            assert getattr(group, name) == getattr(rebuilt, name), name

    def teardown(self) -> None:
        """When nothing gets lost any more, every partition finds its one reader."""
        if not hasattr(self, "sim"):
            return
        self.sim.is_full = False
        self.sim.advance(120_000)
        for _ in range(60):
            for client in self.consumers:
                self.beat(client, loses=False, says=True)
                self.follow(client)
            self.classics_step()
            self.no_partition_is_read_by_two_members()
            self.sim.advance(10)
        readers = self.members()
        wanted = {
            (topic.id, p)
            for client in readers
            for name in (*client.topics, *self.matched(client))
            if (topic := self.topics.by_name(name)) is not None
            for p in range(len(topic.streams))
        }
        group = self.group
        if group is not None and group.members:
            assert {client.id for client in readers} == group.members.keys()
            assert {place for client in readers for place in client.reads} == wanted
            assert group.phase.value == "Stable"

    def classics_step(self) -> None:
        """Where there are classic members they take part."""

    def matched(self, client: Client) -> list[str]:
        if client.pattern is None:
            return []
        return [name for name in NAMES if client.pattern == ".*" or name.startswith("app.")]


class Everything(Handovers):
    """The same among classic members, changing topics, silence, full disks and restarts."""

    # Topics

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 5))
    def grow(self, name: str, count: int) -> None:
        self.topics.counts[name] = max(self.topics.counts.get(name, 0), count)
        self.sim.shard.consumers.topic_changed(name)

    @rule(name=st.sampled_from(NAMES), count=st.integers(0, 4))
    def recreate(self, name: str, count: int) -> None:
        self.topics.recreate(name, count)
        if not count:
            del self.topics.counts[name]
        self.sim.shard.consumers.topic_changed(name)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), topics=TOPICS)
    def consumer_reads_other_topics(self, data: st.DataObject, topics: tuple[str, ...]) -> None:
        client = data.draw(st.sampled_from(self.consumers))
        client.topics, client.is_sure = topics, False
        self.beat(client, loses=False, says=True)

    # Members of the classic protocol, which give up everything before they join again

    @rule(topics=TOPICS)
    def start_classic(self, topics: tuple[str, ...]) -> None:
        client = Client("", topics)
        self.classics.append(client)
        self.classic_step(client)

    @precondition(lambda self: self.classics)
    @rule(data=st.data())
    def classic_goes_on(self, data: st.DataObject) -> None:
        self.classic_step(data.draw(st.sampled_from(self.classics)))

    @precondition(lambda self: self.classics)
    @rule(data=st.data())
    def classic_leaves(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.classics))
        self.classics.remove(client)
        client.reads = set()
        if client.id:
            self.attempt(client, lambda: self.sim.leave(G, [LeavingMember(client.id)]))

    def classics_step(self) -> None:
        for client in list(self.classics):
            self.classic_step(client)

    def classic_step(self, client: Client) -> None:
        if client.join_ticket is not None:
            self.classic_joined(client)
        elif client.sync_ticket is not None:
            self.classic_synced(client)
        elif client.epoch == 0:
            self.classic_join(client)
        else:
            request = HeartbeatRequest(group_id=G, generation=client.epoch, member_id=client.id)
            self.classic_attempt(client, lambda: self.sim.heartbeat(request))

    def classic_attempt(self, client: Client, act: Callable[[], T]) -> T | None:
        try:
            return act()
        except MainstemError as refusal:
            self.classic_refused(client, refusal)
            return None

    def classic_refused(self, client: Client, refusal: MainstemError) -> None:
        client.begin_anew()
        if refusal.code is ErrorCode.MEMBER_ID_REQUIRED:
            client.id = refusal.subject
        elif refusal.code is ErrorCode.UNKNOWN_MEMBER:
            client.id = ""
        else:
            assert refusal.code in {
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.COORDINATOR_UNAVAILABLE,
                ErrorCode.GROUP_FULL,
            }

    def classic_join(self, client: Client) -> None:
        client.begin_anew()
        request = JoinRequest(
            group_id=G,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=self.patience_ms,
            protocol_type="consumer",
            protocols=(("range", subscription_bytes(list(client.topics), {})),),
            member_id=client.id,
            client_id="c",
            id_required=True,
        )
        client.join_ticket = self.classic_attempt(client, lambda: self.sim.join(request))
        self.sim.advance(0)

    def classic_joined(self, client: Client) -> None:
        assert client.join_ticket is not None
        answer = self.sim.answers.get(client.join_ticket)
        if answer is None:
            return
        client.join_ticket = None
        if isinstance(answer, MainstemError):
            self.classic_refused(client, answer)
            return
        assert isinstance(answer, JoinAnswer)
        client.id, client.epoch = answer.member_id, answer.generation
        members = [member.member_id for member in answer.members]
        counts = self.topics.counts
        shares = {
            member: {t: frozenset(range(n, counts[t], len(members))) for t in counts}
            for n, member in enumerate(members)
        }
        request = SyncRequest(
            group_id=G,
            generation=client.epoch,
            member_id=client.id,
            assignments=tuple((m, assignment_bytes(share, 1)) for m, share in shares.items()),
        )
        client.sync_ticket = self.classic_attempt(client, lambda: self.sim.sync(request))

    def classic_synced(self, client: Client) -> None:
        assert client.sync_ticket is not None
        answer = self.sim.answers.get(client.sync_ticket)
        if answer is None:
            return
        client.sync_ticket = None
        if isinstance(answer, MainstemError):
            self.classic_refused(client, answer)
            return
        assert isinstance(answer, SyncAnswer)
        named = read_assignment(answer.assignment).partitions
        client.reads = places({self.topics.id_of(name): found for name, found in named.items()})

    # The world

    @rule(by_ms=st.integers(1, 3_000) | st.integers(1, 60_000))
    def wait(self, by_ms: int) -> None:
        self.sim.advance(by_ms)

    @rule(full=st.booleans())
    def disk(self, full: bool) -> None:
        self.sim.is_full = full

    @rule()
    def restart_node(self) -> None:
        """Whoever waits for an answer finds its connection closed and asks again."""
        self.sim.restart()
        for client in self.classics:
            if client.join_ticket is not None or client.sync_ticket is not None:
                client.begin_anew()


TestHandovers = Handovers.TestCase
TestHandovers.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestEverything = Everything.TestCase
TestEverything.settings = settings(max_examples=250, stateful_step_count=50, deadline=None)
