"""How far one follower is, as its leader knows it.

StateProbe       one message at a time until it is known where both logs agree
StateReplicate   messages follow each other without waiting, up to the window
StateSnapshot    nothing is sent until the snapshot has arrived or failed
"""

from collections import deque
from enum import Enum, auto


class ProgressState(Enum):
    """How entries are sent."""

    StateProbe = auto()
    StateReplicate = auto()
    StateSnapshot = auto()


class Progress:
    """What the leader knows (``match``), assumes (``next``) and has under way."""

    __slots__ = (
        "_inflight", "inflight_max", "is_learner", "match", "msg_app_flow_paused", "next",
        "pending_snapshot", "recent_active", "sent_commit", "state",
    )  # fmt: skip

    def __init__(self, next_index: int, inflight_max: int, *, is_learner: bool) -> None:
        self.match = 0
        self.next = next_index
        self.state = ProgressState.StateProbe
        self.inflight_max = inflight_max
        self.is_learner = is_learner
        self.recent_active = False
        self.msg_app_flow_paused = False
        self.pending_snapshot = 0
        self.sent_commit = 0
        self._inflight: deque[int] = deque()  # last index of each message under way

    @property
    def is_paused(self) -> bool:
        """Whether nothing may be sent until the follower answers or a heartbeat is answered."""
        return self.state is ProgressState.StateSnapshot or self.msg_app_flow_paused

    @property
    def is_full(self) -> bool:
        """Whether as many messages are under way as the window allows."""
        return len(self._inflight) >= self.inflight_max

    @property
    def inflight_count(self) -> int:
        """How many messages with entries are under way."""
        return len(self._inflight)

    def become_probe(self) -> None:
        """Probe where the logs agree; after a snapshot, from its end on."""
        if self.state is ProgressState.StateSnapshot:
            pending = self.pending_snapshot
            self._reset(ProgressState.StateProbe)
            self.next = max(self.match + 1, pending + 1)
        else:
            self._reset(ProgressState.StateProbe)
            self.next = self.match + 1
        self.sent_commit = min(self.sent_commit, self.next - 1)

    def become_replicate(self) -> None:
        """The logs agree until ``match``: send without waiting."""
        self._reset(ProgressState.StateReplicate)
        self.next = self.match + 1

    def become_snapshot(self, index: int) -> None:
        """The follower needs entries that are no longer in the log."""
        self._reset(ProgressState.StateSnapshot)
        self.pending_snapshot = index
        self.next = index + 1
        self.sent_commit = index

    def sent_entries(self, count: int) -> None:
        """A message with ``count`` entries has left."""
        if self.state is ProgressState.StateReplicate:
            if count:
                self.next += count
                self._inflight.append(self.next - 1)
            # A full window lets one empty message through after each heartbeat's answer: were all
            # that is under way lost, that one would be refused and bring us back to probing.
            self.msg_app_flow_paused = self.is_full
        elif count:
            self.msg_app_flow_paused = True

    def maybe_update(self, index: int) -> bool:
        """The follower holds everything until ``index``; whether that is new."""
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, index + 1)
        self.msg_app_flow_paused = False
        return True

    def free_until(self, index: int) -> None:
        """Messages that ended at or before ``index`` have arrived."""
        while self._inflight and self._inflight[0] <= index:
            self._inflight.popleft()

    def maybe_decrease_to(self, rejected: int, match_hint: int) -> bool:
        """The follower has no such entry at ``rejected``; False when that is out of date.

        Its guess is followed also after entries were sent without waiting: acknowledgements may
        have been lost, and going back to ``match`` could cost a snapshot.
        """
        if self.state is ProgressState.StateReplicate:
            if rejected <= self.match:
                return False
            self._reset(ProgressState.StateProbe)
        elif self.next - 1 != rejected:
            return False
        self.next = max(min(rejected, match_hint + 1), self.match + 1)
        self.sent_commit = min(self.sent_commit, self.next - 1)
        self.msg_app_flow_paused = False
        return True

    def _reset(self, state: ProgressState) -> None:
        self.state = state
        self.msg_app_flow_paused = False
        self.pending_snapshot = 0
        self._inflight.clear()
