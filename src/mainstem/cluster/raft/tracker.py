"""Members of the group, how far each is, which ones were active, and their votes."""

from mainstem.cluster.raft.messages import ConfState
from mainstem.cluster.raft.progress import Progress
from mainstem.cluster.raft.quorum import VoteResult, committed_index, vote_result
from mainstem.model.ids import NodeId


class Tracker:
    """The membership as it is applied, and one ``Progress`` for each member."""

    def __init__(self, conf_state: ConfState, inflight_max: int, next_index: int) -> None:
        self._inflight_max = inflight_max
        self.conf_state = ConfState()
        self.progress: dict[NodeId, Progress] = {}
        self.votes: dict[NodeId, bool] = {}
        self.switch_to(conf_state, next_index)

    @property
    def voters(self) -> tuple[NodeId, ...]:
        """The members that elect and commit."""
        return self.conf_state.voters

    def switch_to(self, conf_state: ConfState, next_index: int) -> None:
        """Change the membership; remaining members keep their progress."""
        members = sorted({*conf_state.voters, *conf_state.learners})
        progress = {}
        for node in members:
            known = self.progress.get(node)
            if known is None:
                known = Progress(next_index, self._inflight_max, is_learner=False)
                # A new member has one round before its silence counts against the leader.
                known.recent_active = True
            known.is_learner = node in conf_state.learners
            progress[node] = known
        self.conf_state = conf_state
        self.progress = progress

    def reset(self, next_index: int) -> None:
        """Reset all progress and votes, as at the start of a term."""
        self.votes.clear()
        self.progress = {
            node: Progress(next_index, self._inflight_max, is_learner=known.is_learner)
            for node, known in self.progress.items()
        }

    def committed(self) -> int:
        """The largest index that more than half of the voters hold."""
        match = {node: known.match for node, known in self.progress.items()}
        return committed_index(self.voters, match)

    def record_vote(self, node: NodeId, *, granted: bool) -> VoteResult:
        """Count a vote, the first of each node; where the election stands."""
        self.votes.setdefault(node, granted)
        return vote_result(self.voters, self.votes)

    def quorum_active(self, myself: NodeId) -> bool:
        """Whether more than half of the voters were active since the last call."""
        active = {
            node: known.recent_active or node == myself for node, known in self.progress.items()
        }
        return vote_result(self.voters, active) is VoteResult.VoteWon
