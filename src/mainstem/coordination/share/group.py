"""One share group: its members, their assignments, and the state of each partition.

Members and epochs are facts; assignments follow from them and from the topics, and are computed
again after a restart. A member may get a new assignment late: records are locked individually, so
two members may read the same partition.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mainstem.coordination.consumer.facts import NOTHING, Partitions
from mainstem.coordination.groups.requests import ListedGroup
from mainstem.coordination.share.assignor import SIMPLE
from mainstem.coordination.share.facts import (
    ShareEpochMoved,
    ShareFact,
    ShareFactRemoved,
    ShareKind,
    ShareMemberSaved,
    ShareState,
    ShareStateRemoved,
    ShareStateSaved,
)
from mainstem.coordination.share.requests import DescribedShareGroup, DescribedShareMember
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import TopicId

SHARE_TYPE = "share"
EMPTY, STABLE = "Empty", "Stable"
# The removal of a member that could not be stored is retried after this time.
RETRY_MS = 1_000

SharePartitionKey = tuple[TopicId, int]


@dataclass(slots=True)
class ShareGroup:
    """Holds the members and assignments of a share group.

    ``is_stale``: topic metadata may have changed since the epoch was last bumped.
    """

    id: str
    epoch: int = 0
    topics_hash: int = 0
    members: dict[str, ShareMemberSaved] = field(default_factory=dict)
    states: dict[SharePartitionKey, ShareState] = field(default_factory=dict)
    target: Mapping[str, Partitions] = field(default_factory=dict)
    sent_epochs: dict[str, int] = field(default_factory=dict)  # member -> the epoch last sent to it
    deadlines_ms: dict[str, int] = field(default_factory=dict)
    is_stale: bool = True

    @property
    def state(self) -> str:
        """State of the group, as Kafka's tools print it."""
        return STABLE if self.members else EMPTY

    def topic_names(self) -> Iterable[str]:
        """All topic names that members subscribe to."""
        return {name for member in self.members.values() for name in member.topics}

    def reads(self, topic: str) -> bool:
        """Whether any member subscribes to that topic."""
        return any(topic in member.topics for member in self.members.values())

    def next_ms(self) -> int | None:
        """Time at which the next session ends."""
        return min(self.deadlines_ms.values(), default=None)

    def postpone(self, now_ms: int) -> None:
        """Postpone passed deadlines whose decision could not be stored."""
        for member_id, at_ms in self.deadlines_ms.items():
            self.deadlines_ms[member_id] = max(at_ms, now_ms + RETRY_MS)

    def replay(self, fact: ShareFact) -> None:
        """Apply a stored fact."""
        match fact:
            case ShareMemberSaved(_, member_id):
                self.members[member_id] = fact
            case ShareEpochMoved(_, epoch, topics_hash):
                self.epoch, self.topics_hash = epoch, topics_hash
            case ShareStateSaved(_, topic, partition, state):
                self.states[topic, partition] = state
            case ShareStateRemoved(_, topic, partition):
                self.states.pop((topic, partition), None)
            case ShareFactRemoved(kind, _, member_id):
                if kind is ShareKind.MEMBER:
                    self.members.pop(member_id, None)
                    self.sent_epochs.pop(member_id, None)
                    self.deadlines_ms.pop(member_id, None)

    def listed(self) -> ListedGroup:
        """The entry of the group in a list of groups."""
        return ListedGroup(
            self.id, self.state, SHARE_TYPE, self.epoch, len(self.members), SHARE_TYPE
        )

    def described(self) -> DescribedShareGroup:
        """Describe the group."""
        members = tuple(
            DescribedShareMember(
                m.member_id,
                m.rack_id,
                self.sent_epochs.get(m.member_id, self.epoch),
                m.client_id,
                m.client_host,
                m.topics,
                self.target.get(m.member_id, NOTHING),
            )
            for m in self.members.values()
        )
        return DescribedShareGroup(self.id, self.state, self.epoch, self.epoch, SIMPLE, members)


def not_a_share_group(group_id: str, cause: str) -> InvalidRequest:
    """The error if no share group has that id."""
    return InvalidRequest(ErrorCode.UNKNOWN_GROUP, cause, subject=group_id)
