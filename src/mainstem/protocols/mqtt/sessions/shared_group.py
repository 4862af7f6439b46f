"""A shared subscription: each message goes to one of its members.

Pure. Members take turns; one without space is skipped; messages that no member can take wait. A
message that was lent to a member is returned when the member leaves without acknowledging it.
"""

from collections.abc import Sequence

from mainstem.protocols.mqtt.convert import Incoming
from mainstem.protocols.mqtt.sessions.backlog import Backlog, ReadPending, StreamPosition
from mainstem.protocols.mqtt.sessions.client_session import ClientSession, SessionContext
from mainstem.protocols.mqtt.subscription_trie import Granted
from mainstem.wire.mqtt.packets import Subscription
from mainstem.wire.mqtt.topics import SHARE, SharedFilter, fits


class SharedGroup:
    """Distributes messages of a shared subscription among its members.

    ``has_changed``: the state differs from what was stored last.
    """

    def __init__(self, shared: SharedFilter, context: SessionContext, *, waiting_max: int) -> None:
        self.name = f"{SHARE}{shared.group}/{shared.filter}"
        self.filter = shared.filter
        self.standing = Granted(Subscription(shared.filter, 2))  # in the trie, for all members
        self.members: dict[ClientSession, Granted] = {}
        self.backlog = Backlog(waiting_max)
        self.lent: dict[StreamPosition, None] = {}
        self.has_changed = False
        self._context = context
        self._turns: list[ClientSession] = []

    @property
    def is_durable(self) -> bool:
        """Whether the group is restored after a restart."""
        return any(member.is_durable for member in self.members)

    def join(self, member: ClientSession, granted: Granted) -> None:
        """Add a member, or change its subscription."""
        if member not in self.members:
            self._turns.append(member)
        self.members[member] = granted
        member.lenders[self] = None
        self.has_changed = True

    def leave(self, member: ClientSession) -> None:
        """Remove a member; it may still finish its messages."""
        if self.members.pop(member, None) is not None:
            self._turns.remove(member)
            member.lenders.pop(self, None)
            self.has_changed = True

    def grants_for(self, topic: str) -> Sequence[Granted]:
        """The subscription of any member, if the filter matches."""
        return list(self.members.values())[:1] if fits(self.filter, topic) else ()

    def offer(self, place: StreamPosition, incoming: Incoming, _grants: Sequence[Granted]) -> None:
        """Send or queue a message of the log that matches the group's filter."""
        backlog = self.backlog
        if backlog.knows(place):
            return
        if backlog or backlog.behind or not self._lend(place, incoming):
            is_awaited = incoming.qos or any(member.link for member in self.members)
            if is_awaited:
                backlog.put(place)

    def drain(self) -> None:
        """Send waiting messages, as far as members have space."""
        while self._any_member() and (place := self.backlog.take()) is not None:
            incoming = self._context.fetch(place)
            if isinstance(incoming, ReadPending):
                self.backlog.give_back(place)
                self._context.ask_again(self)
                return
            if incoming is not None and not self._lend(place, incoming):
                self.backlog.give_back(place)
                return
        if not self.backlog and self.backlog.behind and self._any_member():
            self._context.catch_up(self)

    def settled(self, place: StreamPosition) -> None:
        """Remove a message that a member has finished."""
        self.lent.pop(place, None)
        self.has_changed = True

    def returned(self, place: StreamPosition) -> None:
        """Return a message that a member did not finish to the backlog."""
        if place in self.lent:
            del self.lent[place]
            self.backlog.give_back(place)
            self.has_changed = True

    def _any_member(self) -> bool:
        return any(member.has_space for member in self._turns)

    def _lend(self, place: StreamPosition, incoming: Incoming) -> bool:
        turns = self._turns
        for _ in range(len(turns)):
            member = turns.pop(0)
            turns.append(member)
            self.lent[place] = None
            if member.lend(place, incoming, self.members[member], self):
                return True
        self.lent.pop(place, None)
        return False
