"""Where requests wait and time is kept: carries out what the machines of the shards decide.

    effects: store ─▶ replay ─▶ answers, once committed ─▶ parked futures
             wake_ms ─▶ alarms ─▶ one timer ─▶ on_time ─▶ effects

No answer overtakes the facts it may rest on. A caller that goes away is forgotten; its member
lives until its session ends.
"""

import asyncio
import itertools

from mainstem.coordination.alarms import Alarms
from mainstem.coordination.group_shards_runtime import GroupShards, LiveGroups, store_then
from mainstem.coordination.rebalance import Answer, GroupEffects
from mainstem.coordination.records import GroupSaved
from mainstem.coordination.shard import Instant
from mainstem.coordination.shard_runtime import as_coordinator_error
from mainstem.coordination.shards_runtime import stopping
from mainstem.model.clock import Clock
from mainstem.model.errors import MainstemError

Parked = asyncio.Future[Answer]


class Desk:
    """Parked requests and the timer of all groups."""

    def __init__(self, shards: GroupShards, clock: Clock) -> None:
        self._shards = shards
        self._clock = clock
        self._parked: dict[int, Parked] = {}
        self._tickets = itertools.count(1)
        self._alarms = Alarms()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Send everybody away; nothing is lost, for all that counts is stored."""
        self._is_stopped = True
        self._set_timer()
        for future in self._parked.values():
            if not future.done():
                future.set_exception(stopping())

    def now(self) -> Instant:
        """Both clocks."""
        # Rounded, not cut: a timer that rings exactly on time must find its deadline passed.
        return Instant(round(self._clock.monotonic() * 1000), self._clock.wall_ms())

    def park(self) -> tuple[int, Parked]:
        """A place to wait for an answer, and the ticket that names it."""
        ticket = next(self._tickets)
        future: Parked = asyncio.get_running_loop().create_future()
        self._parked[ticket] = future
        return ticket, future

    def forget(self, ticket: int) -> None:
        """Nobody waits under that ticket any more."""
        self._parked.pop(ticket, None)

    def loaded(self, live: LiveGroups) -> None:
        """A shard begins to serve: its members have a session's time to show that they live."""
        self._shards.sweep(live)
        for group_id, effects in live.shard.groups.loaded(self.now()).items():
            self.carry_out(live, group_id, effects)

    def carry_out(self, live: LiveGroups, group_id: str, effects: GroupEffects) -> None:
        """Store, answer, and remember when to come back."""
        follow_up = None
        if effects.then is not None:
            [saved] = effects.facts
            assert isinstance(saved, GroupSaved)
            follow_up = store_then(live, saved, effects.then, self.now())
        elif effects.facts:
            self._shards.store_or_warn(live, effects.facts)
        if effects.answers:
            self._release(live, effects)
        if effects.wake_ms is not None:
            self._alarms.set(group_id, effects.wake_ms)
            self._set_timer()
        if follow_up is not None:
            self.carry_out(live, group_id, follow_up)

    def _release(self, live: LiveGroups, effects: GroupEffects) -> None:
        def settled(error: MainstemError | None) -> None:
            for ticket, answer in effects.answers:
                future = self._parked.get(ticket)
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
            live = self._shards.find(group_id)
            if live is not None:
                self.carry_out(live, group_id, live.shard.groups.on_time(group_id, now))
        self._set_timer()
