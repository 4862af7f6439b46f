"""Runs Raft groups from a script: one command per line, with its effects as output.

group 3 [voters=2] [key=value …]   start; settings of the cores by name
campaign 1                         node 1 starts an election without waiting for its timer
tick 1                             advance the time to the next deadline of node 1
propose 1 hello                    propose a value to the leader
store 1 | finish 1                 take the ``Ready`` of node 1; report it as stored
deliver 2 [MsgApp …]               deliver messages in flight to node 2, in order
drop 2 [MsgApp …]                  lose them
settle                             store, finish and deliver until nothing is pending
crash 1                            node 1 starts again from its disk
compact 1                          node 1 takes a snapshot
transfer 1 2 | read 1              transfer leadership; start a read
add 1 4 | learner 1 4 | remove 1 4 the leader changes the membership
status                             print the state of all nodes
"""

from collections.abc import Callable
from random import Random

import msgspec
from tests.kit.simulation.raft.cores import RaftCoreSimulator, SimulatedMember

from mainstem.cluster.raft.messages import (
    NO_NODE,
    ConfChange,
    ConfChangeType,
    Entry,
    EntryType,
    MessageType,
    RaftMessage,
    Ready,
    decode_change,
)
from mainstem.cluster.raft.state import RaftSettings
from mainstem.model.errors import MainstemError
from mainstem.model.ids import NodeId

SETTLE_MAX = 500
CHANGES = {
    "add": ConfChangeType.ConfChangeAddNode,
    "learner": ConfChangeType.ConfChangeAddLearnerNode,
    "remove": ConfChangeType.ConfChangeRemoveNode,
}


class RaftScript:
    """Runs a script of Raft commands and prints their effects."""

    def __init__(self) -> None:
        self._simulator: RaftCoreSimulator
        self._out: list[str] = []
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "group": self._group,
            "deliver": self._deliver,
            "drop": self._drop,
            "settle": self._settle,
            "status": self._status,
            "transfer": self._transfer,
        }

    def run(self, command: str) -> str:
        """Run one command; returns its output."""
        self._out = []
        verb, *words = command.split()
        if verb in self._commands:
            self._commands[verb](words)
        elif verb in CHANGES:
            member = self._member(words[0])
            change = ConfChange(CHANGES[verb], NodeId(int(words[1])))
            self._ask(lambda: member.core.propose_change(change, self._simulator.now_s))
        else:
            self._act(verb, self._member(words[0]), words[1:])
        return "\n".join(self._out)

    def _member(self, word: str) -> SimulatedMember:
        return self._simulator.members[NodeId(int(word))]

    def _group(self, words: list[str]) -> None:
        options = dict(word.split("=") for word in words[1:])
        voters = int(options.pop("voters", words[0]))
        chosen = {name: msgspec.json.decode(value) for name, value in options.items()}

        def settings(node: NodeId) -> RaftSettings:
            return msgspec.convert({"node_id": node, **chosen}, RaftSettings)

        chance = Random(0)
        self._simulator = RaftCoreSimulator(int(words[0]), voters, chance, settings)

    def _act(self, verb: str, member: SimulatedMember, words: list[str]) -> None:
        simulator, core = self._simulator, member.core
        if verb == "campaign":
            core.campaign(simulator.now_s)
        elif verb == "tick":
            simulator.tick(member)
        elif verb == "propose":
            values = [word.encode() for word in words]
            self._ask(lambda: core.propose(values, simulator.now_s))
        elif verb == "store":
            self._store(member)
        elif verb == "finish":
            self._finish(member)
        elif verb == "crash":
            simulator.boot(member)
        elif verb == "compact":
            if simulator.compact(member, keep=0):
                self._print(f"{member.id} has a snapshot until {core.state.log.snapshot.index}")
        elif verb == "read":
            simulator.read(member)
        else:
            raise ValueError(f"no command is called {verb}")

    def _ask(self, call: Callable[[], object]) -> None:
        try:
            call()
        except MainstemError as refusal:
            self._print(f"refused: {refusal.cause}")

    def _store(self, member: SimulatedMember) -> None:
        before = len(self._simulator.pool)
        ready = self._simulator.take(member)
        if ready is not None:
            self._print_saved(member, ready)
        for message in self._simulator.pool[before:]:
            self._print(_text(message))

    def _print_saved(self, member: SimulatedMember, ready: Ready) -> None:
        saved = []
        if ready.snapshot is not None:
            saved.append(f"snapshot until {ready.snapshot.index}")
        if ready.hard_state is not None:
            vote = ready.hard_state.vote
            for_whom = "nobody" if vote == NO_NODE else str(vote)
            kept = ready.hard_state
            saved.append(f"term {kept.term} vote for {for_whom} commit {kept.commit}")
        if ready.entries:
            saved.append("entries " + " ".join(_entry(entry) for entry in ready.entries))
        if saved:
            self._print(f"{member.id} stores {', '.join(saved)}")

    def _finish(self, member: SimulatedMember) -> None:
        ready = member.ready
        if ready is None:
            return
        before = len(self._simulator.pool)
        role = member.core.state.state
        self._simulator.finish(member)
        for message in self._simulator.pool[before:]:
            self._print(_text(message))
        applied = [entry for entry in ready.committed_entries if entry.data]
        if applied:
            self._print(f"{member.id} applies {' '.join(_entry(entry) for entry in applied)}")
        for read in ready.read_states:
            self._print(f"{member.id} may serve a read from {read.index} on")
        state = member.core.state
        if state.state is not role:
            self._print(f"{member.id} is now {state.state.name} in term {state.term}")

    def _deliver(self, words: list[str]) -> None:
        for message in self._taken(words):
            self._arrive(message)

    def _drop(self, words: list[str]) -> None:
        for message in self._taken(words):
            self._print(f"lost: {_text(message)}")
            if message.type is MessageType.MsgSnap:
                self._simulator.lose_snapshot(message)

    def _taken(self, words: list[str]) -> list[RaftMessage]:
        to, kinds = NodeId(int(words[0])), set(words[1:])
        taken = [
            message
            for message in self._simulator.pool
            if message.to == to and (not kinds or message.type.name in kinds)
        ]
        self._simulator.pool = [message for message in self._simulator.pool if message not in taken]
        return taken

    def _arrive(self, message: RaftMessage) -> None:
        member = self._simulator.members[message.to]
        before = member.core.state.soft_state
        self._simulator.deliver(message)
        after = member.core.state.soft_state
        if (before.state, before.term) != (after.state, after.term):
            self._print(f"{member.id} is now {after.state.name} in term {after.term}")

    def _settle(self, words: list[str]) -> None:
        del words
        for _ in range(SETTLE_MAX):
            moved = False
            for member in self._simulator.members.values():
                if member.core.has_ready or member.ready is not None:
                    moved = True
                    self._store(member)
                    self._finish(member)
            pool, self._simulator.pool = self._simulator.pool, []
            for message in pool:
                moved = True
                self._arrive(message)
            if not moved:
                return
        self._print("it does not settle")

    def _status(self, words: list[str]) -> None:
        del words
        for member in self._simulator.members.values():
            state = member.core.state
            lead = "nobody" if state.lead == NO_NODE else f"{state.lead}"
            log = state.log
            entries = log.slice(log.first_index, log.last_index + 1)
            terms = " ".join(_entry(entry) for entry in entries)
            self._print(
                f"{member.id} {state.state.name} term {state.term} led by {lead}, "
                f"committed {log.committed}, log after {log.start.index}/{log.start.term}: {terms}"
            )

    def _transfer(self, words: list[str]) -> None:
        member = self._member(words[0])
        if not member.core.transfer_leadership(NodeId(int(words[1])), self._simulator.now_s):
            self._print("that makes no sense")

    def _print(self, line: str) -> None:
        self._out.append(line.rstrip())


def _entry(entry: Entry) -> str:
    text = f"{entry.index}/{entry.term}"
    if entry.type is EntryType.EntryConfChange:
        change = decode_change(entry.data)
        return f"{text}:{change.type.name.removeprefix('ConfChange')}({change.node_id})"
    return f"{text}:{entry.data.decode()}" if entry.data else text


def _text(message: RaftMessage) -> str:
    text = f"{message.from_} -> {message.to} {message.type.name} term {message.term}"
    kind = message.type
    if kind in (MessageType.MsgVote, MessageType.MsgPreVote):
        text += f" log ends with {message.index}/{message.log_term}"
    elif kind is MessageType.MsgApp:
        entries = " ".join(_entry(entry) for entry in message.entries)
        text += f" after {message.index}/{message.log_term} [{entries}] commit {message.commit}"
    elif kind is MessageType.MsgAppResp and not message.reject:
        text += f" holds {message.index}"
    elif kind is MessageType.MsgHeartbeat:
        text += f" commit {message.commit}"
    elif kind is MessageType.MsgSnap and message.snapshot is not None:
        text += f" until {message.snapshot.index}/{message.snapshot.term}"
    elif kind is MessageType.MsgReadIndexResp:
        text += f" from {message.index} on"
    if message.reject:
        text += " no"
        if kind is MessageType.MsgAppResp and message.index:
            text += f" {message.index}, perhaps {message.reject_hint}/{message.log_term}"
    return text + (f" round {message.context}" if message.context else "")
