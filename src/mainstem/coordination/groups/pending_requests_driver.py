"""Parked requests and timers of groups: carries out the decisions of the shards.

    effects: store ─▶ replay ─▶ answers, once committed ─▶ parked futures
             wake_ms ─▶ deadlines ─▶ one timer ─▶ on_time ─▶ effects

No answer is sent before the facts it depends on are committed. The requests of a disconnected
caller are dropped; its member stays until its session ends.
"""

import asyncio
import itertools
import logging

from mainstem.coordination.classic.rebalance import ClassicAnswer, GroupEffects
from mainstem.coordination.consumer.decision import ConsumerGroupDecision
from mainstem.coordination.groups.deadline_heap import DeadlineHeap
from mainstem.coordination.groups.facts import GroupSaved
from mainstem.coordination.groups.shards_driver import GroupShards, LiveGroupShard, store_generation
from mainstem.coordination.shards.persistence_driver import as_coordinator_error
from mainstem.coordination.shards.registry_driver import stopping
from mainstem.coordination.shards.state_machine import Instant
from mainstem.coordination.share.group_table import ShareDecision
from mainstem.model.clock import Clock
from mainstem.model.errors import MainstemError

_log = logging.getLogger(__name__)

Parked = asyncio.Future[ClassicAnswer]


class PendingRequests:
    """Parked requests of all groups, and their timer."""

    def __init__(self, shards: GroupShards, clock: Clock) -> None:
        self._shards = shards
        self._clock = clock
        self._parked: dict[int, tuple[LiveGroupShard, Parked]] = {}
        self._tickets = itertools.count(1)
        self._alarms = DeadlineHeap()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Fail all parked requests; no state is lost, because it is stored."""
        self._is_stopped = True
        self._set_timer()
        for _, future in self._parked.values():
            if not future.done():
                future.set_exception(stopping())

    def given_up(self, live: LiveGroupShard) -> None:
        """Fail the parked requests of a shard that moved to another node."""
        for parked_at, future in list(self._parked.values()):
            if parked_at is live and not future.done():
                assert live.refusal is not None, "a shard that was given up has a refusal"
                future.set_exception(live.refusal)

    def now(self) -> Instant:
        """The monotonic and the wall-clock time."""
        # Rounded, not truncated: a timer that fires exactly on time must find its deadline passed.
        return Instant(round(self._clock.monotonic() * 1000), self._clock.wall_ms())

    def park(self, live: LiveGroupShard) -> tuple[int, Parked]:
        """Park a request; returns its ticket and the future of its answer."""
        ticket = next(self._tickets)
        future: Parked = asyncio.get_running_loop().create_future()
        self._parked[ticket] = (live, future)
        return ticket, future

    def forget(self, ticket: int) -> None:
        """Remove the parked request of that ticket."""
        self._parked.pop(ticket, None)

    def loaded(self, live: LiveGroupShard) -> None:
        """Start serving a loaded shard: its members get a full session timeout."""
        self._shards.sweep(live)
        for group_id, effects in live.shard.groups.loaded(self.now()).items():
            self.carry_out(live, group_id, effects)
        for group_id, wake_ms in live.shard.consumers.loaded(self.now()).items():
            self._wake(group_id, wake_ms)
        for group_id, wake_ms in live.shard.shares.loaded(self.now()).items():
            self._wake(group_id, wake_ms)

    def carry_out(self, live: LiveGroupShard, group_id: str, effects: GroupEffects) -> None:
        """Store the facts, send the answers and set the wake-up timer."""
        follow_up = None
        if effects.then is not None:
            [saved] = effects.facts
            assert isinstance(saved, GroupSaved)
            follow_up = store_generation(live, saved, effects.then, self.now())
        elif effects.facts:
            self._shards.store_or_warn(live, effects.facts)
        if effects.answers:
            self._release(live, effects)
        self._wake(group_id, effects.wake_ms)
        if follow_up is not None:
            self.carry_out(live, group_id, follow_up)

    def settle(self, live: LiveGroupShard, decision: ConsumerGroupDecision) -> None:
        """Carry out a decision about a consumer group.

        Raises:
            MainstemError: its facts cannot be stored; nothing has changed.
        """
        now = self._stored(live, decision)
        self.carry_out(live, decision.group_id, live.shard.settle(decision, now))

    def settle_share(self, live: LiveGroupShard, decision: ShareDecision) -> None:
        """Carry out a decision about a share group.

        Raises:
            MainstemError: its facts cannot be stored; nothing has changed.
        """
        now = self._stored(live, decision)
        self._wake(decision.group_id, live.shard.shares.settle(decision, now))

    def _stored(
        self, live: LiveGroupShard, decision: ConsumerGroupDecision | ShareDecision
    ) -> Instant:
        """Store the facts of a decision; returns the time."""
        now = self.now()
        try:
            live.store(decision.facts, now.wall_ms)
        except MainstemError as error:
            raise as_coordinator_error(error) from error
        return now

    def _wake(self, group_id: str, at_ms: int | None) -> None:
        if at_ms is not None:
            self._alarms.set(group_id, at_ms)
            self._set_timer()

    def _release(self, live: LiveGroupShard, effects: GroupEffects) -> None:
        def settled(error: MainstemError | None) -> None:
            for ticket, answer in effects.answers:
                _, future = self._parked.get(ticket, (live, None))
                if future is None or future.done():
                    continue
                outcome = answer if error is None else as_coordinator_error(error)
                if isinstance(outcome, MainstemError):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)

        if live.when_safe(settled):
            settled(None)

    def _set_timer(self) -> None:
        at_ms = self._alarms.next_ms()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_ms is not None and not self._is_stopped:
            delay_s = max(at_ms / 1000 - self._clock.monotonic(), 0)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self.now()
        for group_id in self._alarms.due(now.monotonic_ms):
            live = self._shards.serving(group_id)
            if live is not None:
                self.carry_out(live, group_id, live.shard.groups.on_time(group_id, now))
                self._ring_consumers(live, group_id, now)
                self._ring_shares(live, group_id, now)
        self._set_timer()

    def _ring_consumers(self, live: LiveGroupShard, group_id: str, now: Instant) -> None:
        consumers = live.shard.consumers
        decision = consumers.on_time(group_id, now)
        if decision is not None:
            try:
                self.settle(live, decision)
            except MainstemError as error:
                _log.warning(
                    "expired members of group %s could not be removed, will retry: %s",
                    group_id,
                    error,
                )
                group = consumers.get(group_id)
                assert group is not None, "a decision that is not stored removes no group"
                group.postpone(now.monotonic_ms)
        group = consumers.get(group_id)
        self._wake(group_id, None if group is None else group.next_ms())

    def _ring_shares(self, live: LiveGroupShard, group_id: str, now: Instant) -> None:
        shares = live.shard.shares
        group = shares.get(group_id)
        decision = shares.on_time(group_id, now)
        if group is None:
            return
        if decision is not None:
            try:
                self.settle_share(live, decision)
            except MainstemError as error:
                _log.warning(
                    "expired members of group %s could not be removed, will retry: %s",
                    group_id,
                    error,
                )
                group.postpone(now.monotonic_ms)
        self._wake(group_id, group.next_ms())
