"""Model of catalogue commands whose outcome is unknown, for exhaustive search.

A few senders each have one command and may send it again under the same id. A leader decides on
what is committed, appends an entry, and may lose its leadership at any time; the next leader has
what was committed and any part of the rest. Answers come late or never. ``SEAL`` is refused unless
the first range is the open one, ``CREATE`` unless a topic is missing, ``DELETE`` unless it is
there; ``TAKE`` is always granted and must be granted once. ``AGAIN`` is the first sender's
``CREATE``, with the same topic id, sent as another command by a client that does not know the
outcome: it is refused once that id was used.

``ProposalRules`` selects which rule is broken; the defaults are the protocol. ``search`` visits all
states breadth first, and returns the shortest trace that violates a guarantee.
"""

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

SEAL = "seal"
TAKE = "take"
CREATE = "create"
DELETE = "delete"
AGAIN = "again"

# States of a sender.
READY = "ready"  # it may send, for the first time or again
SENT = "sent"  # it waits for an answer
DONE = "done"
REFUSED = "refused"


class Promise(Enum):
    """Guarantees that must hold in every state."""

    ONE_RANGE = "a seal of the first range closes that range only"
    ONCE = "a command takes effect once"
    DONE_IS_DONE = "what was answered has taken effect"
    REFUSED_IS_REFUSED = "what was refused for certain takes no effect"


class ProposalRules(NamedTuple):
    """The rules of the protocol; every field set otherwise breaks one of them."""

    waits_for_outcome: bool = True  # nothing is decided while an entry is pending
    decides_once: bool = True  # by the id of the command
    ignores_stale_facts: bool = True
    commands_end_with_term: bool = (
        True  # commands that waited for the former leader are not decided
    )
    keeps_replies: bool = True  # a repeat is answered although its topic was deleted meanwhile
    refuses_used_ids: bool = (
        True  # replay ignores a topic whose id was used, so a decision must refuse it
    )


class Sender(NamedTuple):
    """One command; ``tries`` is how often it may still be sent."""

    kind: str
    tries: int
    knows: str = READY


Attempt = tuple[int, int]  # the sender, and how many tries it had left


class ProposalState(NamedTuple):
    """``log`` names the sender of each entry, ``queue`` the attempts that wait to be decided.

    ``parked`` is what waits at the node that led before, and will lead next.
    """

    senders: tuple[Sender, ...]
    log: tuple[int, ...] = ()
    committed: int = 0
    queue: tuple[Attempt, ...] = ()
    parked: tuple[Attempt, ...] = ()
    leaders_left: int = 2


class Effects(NamedTuple):
    """Committed state: the open range, whether the topic exists, whose commands took effect.

    ``is_used``: the topic id of the first sender was used.
    """

    open_index: int
    exists: bool
    taken: tuple[int, ...]
    is_used: bool = False

    def allows(self, number: int, kind: str, *, refuses_used_ids: bool = True) -> bool:
        """Whether a sender's command of this kind is granted."""
        if kind == SEAL:
            return self.open_index == 0
        if _has_first_id(number, kind) and self.is_used and refuses_used_ids:
            return False
        return kind == TAKE or self.exists == (kind == DELETE)


def _has_first_id(number: int, kind: str) -> bool:
    return kind == AGAIN or (kind == CREATE and number == 0)


class ProposalSearchResult(NamedTuple):
    """Result of a search: nothing, or a violated guarantee and the trace that leads to it."""

    states: int
    broken: Promise | None = None
    trace: tuple[str, ...] = ()


def effects(state: ProposalState, rules: ProposalRules) -> Effects:
    """The result of the committed entries."""
    found = Effects(0, exists=False, taken=(0,) * len(state.senders))
    for number in state.log[: state.committed]:
        kind = state.senders[number].kind
        if rules.ignores_stale_facts and not found.allows(number, kind):
            continue
        taken = tuple(count + (at == number) for at, count in enumerate(found.taken))
        exists = found.exists if kind in (SEAL, TAKE) else kind != DELETE
        is_used = found.is_used or _has_first_id(number, kind)
        found = Effects(found.open_index + (kind == SEAL), exists, taken, is_used)
    return found


def broken_promise(state: ProposalState, rules: ProposalRules) -> Promise | None:
    """The first guarantee that a state violates."""
    index, _, taken, _ = effects(state, rules)
    if index > 1:
        return Promise.ONE_RANGE
    if max(taken) > 1:
        return Promise.ONCE
    for number, sender in enumerate(state.senders):
        if sender.knows == DONE and not taken[number]:
            return Promise.DONE_IS_DONE
        if sender.knows == REFUSED and taken[number]:
            return Promise.REFUSED_IS_REFUSED
    return None


def search(kinds: tuple[str, ...], rules: ProposalRules, tries: int = 2) -> ProposalSearchResult:
    """Visit every state that these commands can lead to."""
    beginning = ProposalState(tuple(Sender(kind, tries) for kind in kinds))
    trace: dict[ProposalState, tuple[str, ...]] = {beginning: ()}
    waiting = deque([beginning])
    while waiting:
        state = waiting.popleft()
        for label, following in _after(state, rules):
            if following in trace:
                continue
            trace[following] = (*trace[state], label)
            broken = broken_promise(following, rules)
            if broken is not None:
                return ProposalSearchResult(len(trace), broken, trace[following])
            waiting.append(following)
    return ProposalSearchResult(len(trace))


def _after(state: ProposalState, rules: ProposalRules) -> Iterator[tuple[str, ProposalState]]:
    for number, sender in enumerate(state.senders):
        if sender.knows == READY and sender.tries:
            sent = _knowing(state, number, SENT, tries=sender.tries - 1)
            attempt = (number, sender.tries - 1)
            yield f"sender {number} sends", sent._replace(queue=(*state.queue, attempt))
        if sender.knows == SENT:
            yield f"sender {number} gives up waiting", _knowing(state, number, READY)
    if state.queue:
        yield from _decide(state, rules)
    if state.committed < len(state.log):
        number = state.log[state.committed]
        reached = state._replace(committed=state.committed + 1)
        yield f"the entry of sender {number} is committed, the answer is lost", reached
        if state.senders[number].knows == SENT:
            yield f"sender {number} is answered", _knowing(reached, number, DONE)
    if state.leaders_left:
        yield from _lose_leader(state, rules)


def _decide(state: ProposalState, rules: ProposalRules) -> Iterator[tuple[str, ProposalState]]:
    if rules.waits_for_outcome and state.committed < len(state.log):
        return
    (number, tries), rest = state.queue[0], state.queue[1:]
    state = state._replace(queue=rest)
    sender = state.senders[number]
    waits = sender.knows == SENT and sender.tries == tries
    found = effects(state, rules)
    is_lost = sender.kind == CREATE and not found.exists and not rules.keeps_replies
    if rules.decides_once and number in state.log[: state.committed] and not is_lost:
        yield f"sender {number} is answered again", _knowing(state, number, DONE, only=waits)
    elif is_lost and number in state.log[: state.committed]:
        yield f"sender {number} finds no topic", _knowing(state, number, REFUSED, only=waits)
    elif not found.allows(number, sender.kind, refuses_used_ids=rules.refuses_used_ids):
        yield f"sender {number} is refused", _knowing(state, number, REFUSED, only=waits)
    else:
        yield f"sender {number} is decided", state._replace(log=(*state.log, number))


def _lose_leader(state: ProposalState, rules: ProposalRules) -> Iterator[tuple[str, ProposalState]]:
    queue, parked = ((), ()) if rules.commands_end_with_term else (state.parked, state.queue)
    left = state.leaders_left - 1
    for kept in range(state.committed, len(state.log) + 1):
        yield (
            f"another leader follows, with {kept} entries",
            state._replace(log=state.log[:kept], queue=queue, parked=parked, leaders_left=left),
        )


def _knowing(
    state: ProposalState, number: int, knows: str, *, tries: int | None = None, only: bool = True
) -> ProposalState:
    if not only:
        return state
    sender = state.senders[number]._replace(knows=knows)
    if tries is not None:
        sender = sender._replace(tries=tries)
    return state._replace(senders=(*state.senders[:number], sender, *state.senders[number + 1 :]))
