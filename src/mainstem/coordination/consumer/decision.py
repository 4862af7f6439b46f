"""A decision of the coordinator about a consumer group: facts to store, and their consequences.

A decision changes nothing. Its driver stores the facts (a refusal means that nothing happened),
replays them, lets the table ``settle`` the decision and then sends the answer.
"""

from collections.abc import Sequence

from msgspec import Struct

from mainstem.coordination.consumer.facts import ConsumerFact
from mainstem.coordination.consumer.requests import ConsumerAnswer
from mainstem.coordination.groups.facts import GroupRemoved, GroupSaved
from mainstem.coordination.groups.requests import CommitResult, JoinAnswer, SyncAnswer

GroupDecisionFact = ConsumerFact | GroupSaved | GroupRemoved
Reply = ConsumerAnswer | JoinAnswer | SyncAnswer | list[CommitResult] | None


class Upgraded(Struct, frozen=True):
    """A classic group became a consumer group: members with parked requests have to join again."""

    tickets: tuple[int, ...]


class Downgraded(Struct, frozen=True):
    """Only classic members are left: the group becomes a classic one and may have to rebalance.

    ``protocols`` is what each member supports; a stored generation keeps only the chosen one.
    """

    protocols: dict[str, tuple[tuple[str, bytes], ...]]
    rebalances: bool


class ConsumerGroupDecision(Struct, frozen=True, kw_only=True):
    """Holds the facts to store for a consumer group and their consequences.

    Attributes:
        group_id: the group.
        facts: what to store, in order.
        reply: the answer to the caller.
        refreshed_member: the member whose session is extended.
        refreshed: the current topic metadata has been taken into account.
        joined: the classic member that has to sync next.
        synced: the classic member that has synced.
        rejoins: the classic member that has to join again.
        change: the change of the group's protocol, if any.
    """

    group_id: str
    facts: Sequence[GroupDecisionFact] = ()
    reply: Reply = None
    refreshed_member: str | None = None
    refreshed: bool = False
    joined: str | None = None
    synced: str | None = None
    rejoins: str | None = None
    change: Upgraded | Downgraded | None = None
