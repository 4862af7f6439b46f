"""Who changes the catalogue in ``simulator``, through any node, and what was answered.

Administrators create, grow, configure and delete topics, users and rules, look at them, and send a
command again when they were not told what became of it. Every object's history must be one that
can have happened one command after the other (``linearizability``).
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from mainstem.cluster.peers.error_codec import Unreachable
from mainstem.cluster.raft.core import NotLeader
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import TopicId
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import (
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    SetTopicConfigs,
)
from mainstem.placement.changes.security_commands import (
    CreateAcls,
    DeleteAcls,
    DeleteUser,
    SetCredentials,
)
from mainstem.placement.state.catalogue import Catalogue
from mainstem.security.authentication.passwords import Credentials
from mainstem.security.authorisation.acl import (
    AclFilter,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from mainstem.testing.simulation.cluster.clients import GuaranteeViolated
from mainstem.testing.simulation.cluster.node import SimNode
from mainstem.testing.simulation.linearizability import TimedCommand, Undecided, is_linearizable

# Of a user: the password. Of a rule: whether it is there. Of a topic: what is seen of it (id,
# partitions, settings; None: nothing) and the ids that were ever used for its name.
State = Any
Step = Callable[[State], Iterable[State]]

TOPICS: Final = 3
PARTITIONS_MAX: Final = 3
REPLICAS: Final = 3
# What these refusals say of the object is certain; others say nothing of it.
CONCLUSIVE: Final = frozenset(
    {
        ErrorCode.TOPIC_EXISTS,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_EPOCH,
        ErrorCode.UNKNOWN_RESOURCE,
    }
)


@dataclass(frozen=True, slots=True)
class Change:
    """A command on one object, and what it does where it fits.

    Attributes:
        subject: which object.
        command: what is sent.
        after: the object afterwards; None where the command does not fit.
    """

    subject: str
    command: Command[Any]
    after: Callable[[State], tuple[State] | None]


class SimAdmin:
    """One administrator.

    Args:
        rng: decides what and when.
        nodes: whom commands can be sent to.
        trace: notes what happened.
        history: of every object, shared by all administrators.
    """

    def __init__(
        self,
        rng: Random,
        nodes: Callable[[], list[SimNode]],
        trace: Callable[[str], None],
        history: dict[str, list[TimedCommand[State]]],
    ) -> None:
        self._rng = rng
        self._nodes = nodes
        self._trace = trace
        self._history = history
        self.is_done = False
        self.known = self.unknown = self.repeated = 0

    async def change_until_done(self) -> None:
        """One command after the other."""
        while not self.is_done:
            await asyncio.sleep(self._rng.random() * 2)
            up = self._nodes()
            if not up:
                continue
            node = self._rng.choice(up)
            if self._rng.random() < 0.3:
                await self.look(node, f"topic {self._rng.randrange(TOPICS)}")
                continue
            change = self._some_change(node.catalogue)
            if await self._try(node, change) is None and self._rng.random() < 0.7 and self._nodes():
                self.repeated += 1
                await self._try(self._rng.choice(self._nodes()), change)

    async def look(self, node: SimNode, subject: str) -> None:
        """Look at an object as it is now, not as a node happened to know it."""
        start = asyncio.get_running_loop().time()
        try:
            found = await node.serve(partial(node.look, lambda known: state_of(known, subject)))
        except (MainstemError, TimeoutError):
            return
        self._note(
            subject,
            start,
            lambda state: [state] if _seen(subject, state) == found else [],
            f"is {found}",
        )

    async def _try(self, node: SimNode, change: Change) -> bool | None:
        """Send a command; whether it was carried out, None: nobody knows."""
        start, text = asyncio.get_running_loop().time(), f"{change.command}"
        try:
            reply = await node.serve(partial(node.submit, change.command))
        except (NotLeader, Unreachable):
            return False  # nothing was recorded
        except (Unavailable, TimeoutError):
            self.unknown += 1
            self._note(change.subject, start, _perhaps(change), f"unknown {text}", end=math.inf)
            return None
        except MainstemError as refusal:
            if refusal.code in CONCLUSIVE:
                self._note(change.subject, start, _refused(change), f"refused {text}")
            return False
        self.known += 1
        self._note(change.subject, start, _answered(change, reply), f"done {text}")
        return True

    def _note(
        self, subject: str, start: float, step: Step, text: str, *, end: float | None = None
    ) -> None:
        now = asyncio.get_running_loop().time()
        self._trace(f"{subject} {text}")
        done = TimedCommand(start, now if end is None else end, step, text)
        self._history.setdefault(subject, []).append(done)

    def _some_change(self, catalogue: Catalogue) -> Change:
        """A command that makes sense as far as a node knows, which may be out of date."""
        kind = self._rng.random()
        if kind < 0.15:
            return self._user()
        if kind < 0.3:
            return self._rule()
        subject = f"topic {self._rng.randrange(TOPICS)}"
        known = state_of(catalogue, subject)
        if known is None:
            topic = TopicId(self._rng.randbytes(16))
            create = CreateTopic(topic, _name(subject), 1, REPLICAS)
            return Change(subject, create, _created(topic))
        topic, partitions, configs = known
        if kind < 0.6:
            return Change(subject, DeleteTopic(topic), _of(topic, lambda _: None))
        if kind < 0.8 and partitions < PARTITIONS_MAX:
            more = partitions + 1
            grown = _of(topic, lambda found: (topic, more, found[2]), partitions=partitions)
            return Change(subject, AddPartitions(topic, partitions, more), grown)
        fresh = {"retention.ms": str(self._rng.randint(10**9, 2 * 10**9))}
        new = tuple(fresh.items())
        set_ = _of(topic, lambda found: (topic, found[1], new), configs=configs)
        return Change(subject, SetTopicConfigs(topic, dict(configs), fresh), set_)

    def _user(self) -> Change:
        user = f"user{self._rng.randrange(2)}"
        if self._rng.random() < 0.5:
            delete = lambda found: None if found is None else (None,)  # noqa: E731
            return Change(f"user {user}", DeleteUser(user), delete)
        secret = f"{self._rng.getrandbits(32):x}"
        command = SetCredentials(user, Credentials(argon2=secret))
        return Change(f"user {user}", command, lambda _: (secret,))

    def _rule(self) -> Change:
        number = self._rng.randrange(2)
        rule = rule_of(number)
        if self._rng.random() < 0.5:
            return Change(f"rule {number}", CreateAcls((rule,)), lambda _: (True,))
        # How many rules were found is answered, so that it says what was there.
        wanted = AclFilter(name=rule.name)
        return Change(f"rule {number}", DeleteAcls((wanted,)), lambda _: (False,))


def check_command_histories(history: dict[str, list[TimedCommand[State]]]) -> int:
    """Look whether all that was answered can be; how many histories could not be decided."""
    undecided = 0
    for subject, commands in sorted(history.items()):
        try:
            is_sound = is_linearizable(commands, _before(subject))
        except Undecided:
            undecided += 1
            continue
        if not is_sound:
            texts = sorted(commands, key=lambda command: command.start)
            lines = "\n".join(f"{one.start:.3f} {one.end:.3f} {one.text}" for one in texts)
            raise GuaranteeViolated(f"the answers about {subject} contradict each other:\n{lines}")
    return undecided


def state_of(catalogue: Catalogue, subject: str) -> Any:
    """What is seen of an object on a node."""
    kind, _, name = subject.partition(" ")
    if kind == "topic":
        topic = catalogue.topic(_name(subject))
        if topic is None:
            return None
        return topic.id, len(topic.streams), tuple(topic.configs.items())
    if kind == "user":
        found = catalogue.security.users.get(name)
        return None if found is None else found.argon2
    return rule_of(int(name)) in catalogue.security.rules


def rule_of(number: int) -> AclRule:
    """One of the rules that are made and removed."""
    return AclRule(
        ResourceType.TOPIC,
        PatternType.LITERAL,
        f"ruled {number}",
        "User:alice",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )


def _name(subject: str) -> str:
    return subject.replace(" ", "-")


def _before(subject: str) -> State:
    """What an object is before the first command."""
    kind = subject.partition(" ")[0]
    return {"topic": (None, frozenset()), "user": None, "rule": False}[kind]


def _seen(subject: str, state: State) -> Any:
    return state[0] if subject.startswith("topic") else state


def _created(topic: TopicId) -> Callable[[State], tuple[State] | None]:
    """A topic, if there is none and its id was never used."""

    def act(state: State) -> tuple[State] | None:
        found, used = state
        return None if found is not None or topic in used else (((topic, 1, ()), used | {topic}),)

    return act


def _of(
    topic: TopicId, after: Callable[[Any], Any], **expected: object
) -> Callable[[State], tuple[State] | None]:
    """What becomes of a topic, if it is the one that is meant and as it was expected."""

    def act(state: State) -> tuple[State] | None:
        found, used = state
        if found is None or found[0] != topic:
            return None
        is_as_expected = expected.get("partitions", found[1]) == found[1]
        is_as_expected = is_as_expected and expected.get("configs", found[2]) == found[2]
        return ((after(found), used),) if is_as_expected else None

    return act


def _answered(change: Change, reply: object) -> Step:
    def step(state: State) -> Iterable[State]:
        after = change.after(state)
        if isinstance(change.command, DeleteAcls):
            was_there = reply != ((),)
            return after or () if state == was_there else ()
        return () if after is None else after

    return step


def _refused(change: Change) -> Step:
    return lambda state: [state] if change.after(state) is None else []


def _perhaps(change: Change) -> Step:
    """It is carried out where it fits; elsewhere it may be refused."""
    return lambda state: change.after(state) or [state]
