"""A shard of groups on a virtual clock and an in-memory log, for scenarios and properties.

Does what the driver does, synchronously: facts are encoded, stored and replayed; answers are
collected by ticket; time moves only by ``advance``, from one timer to the next.
"""

import itertools
from collections.abc import Sequence

from tests.kit.simulation.coordination.topic_list import TopicList

from mainstem.coordination.classic.rebalance import ClassicAnswer, GroupEffects
from mainstem.coordination.consumer.classic_members import rejoin_required
from mainstem.coordination.consumer.decision import ConsumerGroupDecision
from mainstem.coordination.consumer.requests import ConsumerAnswer, ConsumerHeartbeat
from mainstem.coordination.groups.deadline_heap import DeadlineHeap
from mainstem.coordination.groups.facts import Fact, GroupSaved, decode, encode
from mainstem.coordination.groups.requests import (
    CommitRequest,
    CommitResult,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
)
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.groups.shard import GroupShard
from mainstem.coordination.shards.state_machine import Instant
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable

_EPOCH_MS = 1_700_000_000_000


class GroupSimulator:
    """One shard; ``answers`` holds the answer to each ticket, ``stored`` all facts in order."""

    def __init__(self, settings: GroupSettings, topics: TopicList | None = None) -> None:
        self.settings = settings
        self.topics = topics or TopicList()
        self.now_ms = 0
        self.answers: dict[int, ClassicAnswer | MainstemError] = {}
        self.stored: list[Fact] = []
        self.is_full = False
        self._tickets = itertools.count(1)
        self._ids = itertools.count(1)
        self._alarms = DeadlineHeap()
        self.shard = self._new_shard()

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.settings, self.topics, lambda: str(next(self._ids)))

    def now(self) -> Instant:
        """The virtual time."""
        return Instant(self.now_ms, _EPOCH_MS + self.now_ms)

    def join(self, request: JoinRequest) -> int:
        """Park a join; returns its ticket. A refusal is raised."""
        ticket = next(self._tickets)
        consumers = self.shard.consumers.get(request.group_id)
        if consumers is not None:
            if consumers.members:
                decision = self.shard.consumers.join(consumers, request, self.now())
                self._settle(decision)
                assert isinstance(decision.reply, JoinAnswer)
                self.answers[ticket] = decision.reply
                return ticket
            self._settle(self.shard.consumers.remove_empty_group(consumers, request))
        effects = self.shard.groups.join(request, ticket, self.now())
        self._carry_out(request.group_id, effects)
        return ticket

    def sync(self, request: SyncRequest) -> int:
        """Send a SyncGroup request."""
        ticket = next(self._tickets)
        consumers = self.shard.consumers.get(request.group_id)
        if consumers is not None:
            decision = self.shard.consumers.classic.sync(consumers, request)
            self._settle(decision)
            if decision.rejoins is not None:
                raise rejoin_required(request.group_id)
            assert isinstance(decision.reply, SyncAnswer)
            self.answers[ticket] = decision.reply
            return ticket
        effects = self.shard.groups.sync(request, ticket, self.now())
        self._carry_out(request.group_id, effects)
        return ticket

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """Send a Heartbeat request."""
        consumers = self.shard.consumers.get(request.group_id)
        if consumers is not None:
            decision = self.shard.consumers.classic_heartbeat(consumers, request, self.now())
            self._settle(decision)
            if decision.rejoins is not None:
                raise rejoin_required(request.group_id)
            return
        self.shard.groups.heartbeat(request, self.now())

    def leave(self, group_id: str, leaving_members: Sequence[LeavingMember]) -> list[CommitResult]:
        """Send a LeaveGroup request."""
        consumers = self.shard.consumers.get(group_id)
        if consumers is not None:
            decision = self.shard.consumers.leave(consumers, leaving_members, self.now())
            self._settle(decision)
            assert isinstance(decision.reply, list)
            return decision.reply
        outcomes, effects = self.shard.groups.leave(group_id, leaving_members, self.now())
        self._carry_out(group_id, effects)
        return outcomes

    def consumer_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerAnswer:
        """Send a ConsumerGroupHeartbeat request."""
        decision = self.shard.consumer_heartbeat(request, self.now())
        self._settle(decision)
        assert isinstance(decision.reply, ConsumerAnswer)
        return decision.reply

    def commit(self, request: CommitRequest) -> list[CommitResult]:
        """Commit offsets."""
        outcomes, facts = self.shard.commit(request, self.now())
        self.store(facts)
        return outcomes

    def store(self, facts: Sequence[Fact]) -> None:
        """Append and replay facts, or refuse all of them."""
        if self.is_full and facts:
            raise Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, "the disk is full")
        for fact in facts:
            self._append(fact)
            self.shard.replay(fact)

    def advance(self, by_ms: int) -> None:
        """Advance the virtual time; timers fire in order at their times."""
        until_ms = self.now_ms + by_ms
        while (at_ms := self._alarms.next_ms()) is not None and at_ms <= until_ms:
            self.now_ms = max(self.now_ms, at_ms)
            for group_id in self._alarms.due(self.now_ms):
                self._carry_out(group_id, self.shard.groups.on_time(group_id, self.now()))
                self._ring_consumers(group_id)
        self.now_ms = until_ms

    def restart(self) -> None:
        """Discard everything that is not stored, and load the stored facts."""
        self.shard = self.rebuilt()
        self._alarms = DeadlineHeap()
        for group_id, effects in self.shard.groups.loaded(self.now()).items():
            self._carry_out(group_id, effects)
        for group_id, wake_ms in self.shard.consumers.loaded(self.now()).items():
            self._wake(group_id, wake_ms)

    def rebuilt(self) -> GroupShard:
        """A new shard, loaded from the stored facts only."""
        shard = self._new_shard()
        for fact in self.stored:
            shard.replay(fact)
        return shard

    def _append(self, fact: Fact) -> None:
        stored = decode(*encode(fact))
        assert stored == fact, "facts survive their encoding"
        self.stored.append(stored)

    def _carry_out(self, group_id: str, effects: GroupEffects) -> None:
        follow_up = None
        if effects.then is not None:
            follow_up = self._store_then(effects)
        elif not self.is_full:
            self.store(effects.facts)
        for ticket, answer in effects.answers:
            assert ticket not in self.answers, "a request is answered once"
            self.answers[ticket] = answer
        self._wake(group_id, effects.wake_ms)
        if follow_up is not None:
            self._carry_out(group_id, follow_up)

    def _settle(self, decision: ConsumerGroupDecision) -> None:
        self.store(decision.facts)
        self._carry_out(decision.group_id, self.shard.settle(decision, self.now()))

    def _ring_consumers(self, group_id: str) -> None:
        decision = self.shard.consumers.on_time(group_id, self.now())
        if decision is not None:
            try:
                self._settle(decision)
            except MainstemError:
                group = self.shard.consumers.get(group_id)
                assert group is not None, "a decision that is not stored removes no group"
                group.postpone(self.now_ms)
        group = self.shard.consumers.get(group_id)
        self._wake(group_id, None if group is None else group.next_ms())

    def _wake(self, group_id: str, at_ms: int | None) -> None:
        if at_ms is not None:
            self._alarms.set(group_id, at_ms)

    def _store_then(self, effects: GroupEffects) -> GroupEffects:
        assert effects.then is not None
        [saved] = effects.facts
        assert isinstance(saved, GroupSaved)
        if self.is_full:
            refusal = Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, "the disk is full")
            return self.shard.groups.refused(effects.then, refusal, self.now())
        self._append(saved)
        return self.shard.groups.stored(effects.then, saved, self.now())
