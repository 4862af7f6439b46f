"""Two releases in ``simulator``, and the check of what may be written before all nodes are new.

A node of release 0.1 is simulated by the current program without the features 0.1 lacks: it
registers without levels, decides nothing about ``mainstem.version``, and ends when it replays a
fact that only level 2 may write. ``LevelChecker`` checks every entry of the catalogue's log.
"""

from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, UnknownVersion
from mainstem.model.features import LEVELS_OF_0_1, MAINSTEM_VERSION, OWN_LEVELS, Levels
from mainstem.model.ids import NodeId
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import (
    AnnounceLevels,
    AnyFact,
    CatalogueState,
    CommandDecided,
    FeaturesSet,
    NodeRegistered,
    PartitionsAdded,
    RegisterNode,
    SetFeatures,
)
from mainstem.placement.changes.decisions import Decision
from mainstem.placement.raft_service import RaftPlacementService
from mainstem.placement.state.catalogue import Catalogue

ReplyT = TypeVar("ReplyT")


class LevelChecker:
    """Checks every entry once, in the order of the log; ``error`` is the first violated rule.

    Attributes:
        level: the level of the cluster, from the entries that any node has applied.
        releases: the levels that each incarnation of a node actually reads.
    """

    def __init__(self) -> None:
        self.level = 1
        self.releases: dict[tuple[NodeId, int], Levels] = {}
        self.error: str | None = None
        self._lives: dict[NodeId, int] = {}
        self._until = 0

    def entry(self, index: int, facts: list[AnyFact]) -> None:
        """A node applies an entry."""
        if index <= self._until:
            return
        self._until = index
        for fact in facts:
            flaw = self._flaw(fact)
            if flaw is not None and self.error is None:
                self.error = f"at entry {index}: {flaw}"

    def state(self, state: CatalogueState) -> None:
        """Check a snapshot from which a node starts."""
        if state.decided and state.features.get(MAINSTEM_VERSION, 1) < OWN_LEVELS[1]:
            self.error = "a snapshot of level 1 contains decided commands"

    def _flaw(self, fact: AnyFact) -> str | None:
        is_low = self.level < OWN_LEVELS[1]
        match fact:
            case CommandDecided() if is_low:
                return "a decided command is recorded at level 1"
            case PartitionsAdded(expected=int()) if is_low:
                return "added partitions contain the expected count at level 1"
            case NodeRegistered(node=node, incarnation=life):
                self._lives[node.id] = max(life, self._lives.get(node.id, 0))
                if not self._reads(node.id, self.level):
                    return f"node {node.id} of release 0.1 is registered at level {self.level}"
            case FeaturesSet(levels=levels) if MAINSTEM_VERSION in levels:
                before, self.level = self.level, levels[MAINSTEM_VERSION]
                old = [node for node in self._lives if not self._reads(node, self.level)]
                if old:
                    return f"the level is {self.level} and nodes {old} do not read it"
                if self.level < before:
                    return f"the level goes back from {before} to {self.level}"
        return None

    def _reads(self, node: NodeId, level: int) -> bool:
        lowest, highest = self.releases.get((node, self._lives[node]), OWN_LEVELS)
        return lowest <= level <= highest


class CheckedPlacementService(RaftPlacementService):
    """The placement service of a node of either release, with a checker of what it applies."""

    def __init__(self, judge: LevelChecker, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._judge = judge

    def apply(self, index: int, data: bytes) -> None:
        """See ``RaftPlacementService``."""
        self._judge.entry(index, [_facts.decode(line) for line in data.split(b"\n")])
        super().apply(index, data)

    def restore(self, state: bytes) -> None:
        """See ``RaftPlacementService``."""
        if state:
            self._judge.state(_states.decode(state))
        super().restore(state)


_facts = msgspec.json.Decoder(AnyFact)
_states = msgspec.json.Decoder(CatalogueState)


class OldCatalogue(Catalogue):
    """The catalogue of a node of release 0.1."""

    __slots__ = ()

    def decide(self, command: Command[ReplyT], now_ms: int) -> Decision[ReplyT]:
        """Decide like 0.1: unknown fields are omitted, unknown commands refused."""
        known: Command[Any] = command
        if isinstance(command, RegisterNode):
            known = replace(command, levels=LEVELS_OF_0_1)
        elif isinstance(command, AnnounceLevels):
            raise Corrupt("not a command for the catalogue: AnnounceLevels")
        elif isinstance(command, SetFeatures) and MAINSTEM_VERSION in command.levels:
            raise InvalidRequest(ErrorCode.INVALID_FEATURE_LEVEL, "there is no such feature")
        return super().decide(known, now_ms)

    def replay(self, fact: AnyFact) -> bool:
        """Replay like 0.1: levels are ignored, an unknown fact ends the node."""
        if isinstance(fact, CommandDecided):
            raise _unknown("a fact CommandDecided")
        if isinstance(fact, NodeRegistered):
            fact = replace(fact, levels=LEVELS_OF_0_1)
        return super().replay(fact)

    def fork(self) -> Catalogue:
        """See ``Catalogue``."""
        forked = OldCatalogue(self.state())
        forked.busy = self.busy
        return forked

    def become(self, state: CatalogueState) -> None:
        """See ``Catalogue``; levels are not kept."""
        if state.decided:
            raise _unknown("commands that were decided")
        super().become(without_levels(state))


def without_levels(state: CatalogueState) -> CatalogueState:
    """The part of a catalogue that nodes of both releases have in common."""
    nodes = tuple(replace(node, levels=LEVELS_OF_0_1) for node in state.nodes)
    return replace(state, nodes=nodes)


def comparable(state: bytes) -> bytes:
    """The bytes of a catalogue, without fields that only one of the releases stores."""
    return msgspec.json.encode(without_levels(_states.decode(state)))


def _unknown(what: str) -> UnknownVersion:
    return UnknownVersion(what, "2", "1", subject="the catalogue")
