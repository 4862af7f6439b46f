"""Administrators of ``simulator``, which change the catalogue through any node, and their history.

They create, extend, configure and delete topics, users and rules, read them, and send a command
again when its outcome is unknown. The history of every object must be linearizable
(``linearizability``).
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

# Of a user: the password. Of a rule: whether it exists. Of a topic: id, partitions and settings
# (None if it does not exist) and the ids that were ever used for its name.
State = Any
Step = Callable[[State], Iterable[State]]

TOPICS: Final = 3
PARTITIONS_MAX: Final = 3
REPLICAS: Final = 3
# These errors determine the state of the object; others do not.
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
    """A command on one object, and its effect if it applies.

    Attributes:
        subject: the object.
        command: the command that is sent.
        after: returns the object afterwards; None if the command does not apply.
    """

    subject: str
    command: Command[Any]
    after: Callable[[State], tuple[State] | None]


class SimAdmin:
    """One administrator.

    Args:
        rng: decides commands and delays.
        nodes: returns the nodes to which commands can be sent.
        trace: records events.
        history: the history of every object, shared by all administrators.
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
        """Send commands one after the other."""
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
        """Read the current state of an object, not a node's possibly outdated one."""
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
        """Send a command; returns whether it was carried out, None if unknown."""
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
        """A random command based on a node's state, which may be outdated."""
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
        # The answer contains the number of rules found, which determines the earlier state.
        wanted = AclFilter(name=rule.name)
        return Change(f"rule {number}", DeleteAcls((wanted,)), lambda _: (False,))


def check_command_histories(history: dict[str, list[TimedCommand[State]]]) -> int:
    """Check that all histories are linearizable; returns how many could not be decided."""
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
    """The state of an object on a node."""
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
    """One of the rules that are created and removed."""
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
    """The state of an object before the first command."""
    kind = subject.partition(" ")[0]
    return {"topic": (None, frozenset()), "user": None, "rule": False}[kind]


def _seen(subject: str, state: State) -> Any:
    return state[0] if subject.startswith("topic") else state


def _created(topic: TopicId) -> Callable[[State], tuple[State] | None]:
    """Create a topic, if it does not exist and its id was never used."""

    def act(state: State) -> tuple[State] | None:
        found, used = state
        return None if found is not None or topic in used else (((topic, 1, ()), used | {topic}),)

    return act


def _of(
    topic: TopicId, after: Callable[[Any], Any], **expected: object
) -> Callable[[State], tuple[State] | None]:
    """Change a topic, if its id and its state are as expected."""

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
    """The command is carried out if it applies; otherwise it may be refused."""
    return lambda state: change.after(state) or [state]
