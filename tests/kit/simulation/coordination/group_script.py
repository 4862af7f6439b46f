"""Commands for a simulated shard of groups, one per line, with their effects as text.

join G client=C [id=M] [instance=I] [protocols=a,b] [session=MS] [rebalance=MS] [old|skips]
sync G id=M generation=N [M1=text M2=text]       the rest are the leader's assignments
heartbeat G id=M generation=N [instance=I]
leave G M… | leave G instance=I
commit G topic/partition=offset [id=M generation=N] · fetch G · delete G · describe G · list
advance MS · restart · full · space · expire
"""

import shlex
from collections.abc import Callable

from tests.kit.simulation.coordination.group_simulator import GroupSimulator

from mainstem.coordination.groups.facts import (
    Fact,
    GroupRemoved,
    GroupSaved,
    OffsetCommitted,
    OffsetRemoved,
)
from mainstem.coordination.groups.requests import (
    CommitRequest,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
)
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.model.errors import MainstemError

Options = dict[str, str]
Command = Callable[[str, list[str], Options], str]


class GroupScript:
    """Runs commands and returns their effects as text."""

    # Whether commits come from clients that understand the error for an unknown group.
    commits_are_new = False

    def __init__(self, sim: GroupSimulator | None = None) -> None:
        self._sim = sim or GroupSimulator(
            GroupSettings(initial_rebalance_delay_ms=3_000, members_max=3)
        )
        self._commands: dict[str, Command] = {
            "join": self._join,
            "sync": self._sync,
            "heartbeat": self._heartbeat,
            "leave": self._leave,
            "commit": self._commit,
            "fetch": self._fetch,
            "delete": self._delete,
            "describe": self._describe,
            "list": lambda *_: "\n".join(map(str, self._sim.shard.list(frozenset(), frozenset()))),
            "advance": self._advance,
            "restart": self._restart,
            "full": lambda *_: self._set_full(full=True),
            "space": lambda *_: self._set_full(full=False),
            "expire": lambda *_: self._expire(),
        }

    def run(self, line: str) -> str:
        """Run one command; returns its output."""
        name, *words = shlex.split(line)
        subject = words[0] if words else ""
        plain = [word for word in words[1:] if "=" not in word]
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        stored, answered = len(self._sim.stored), len(self._sim.answers)
        try:
            printed = [self._commands[name](subject, plain, options)]
        except MainstemError as refusal:
            printed = [f"refused: {refusal}"]
        printed += [f"stored {self.fact_line(fact)}" for fact in self._sim.stored[stored:]]
        for ticket, answer in list(self._sim.answers.items())[answered:]:
            printed.append(f"#{ticket} {self.answer_line(answer)}")
        return "\n".join(filter(None, printed))

    def fact_line(self, fact: Fact) -> str:
        """A stored fact as text."""
        return fact_text(fact)

    def answer_line(self, answer: object) -> str:
        """An answer as text."""
        return answer_text(answer)

    def _join(self, group_id: str, plain: list[str], options: Options) -> str:
        names = options.get("protocols", "range").split(",")
        metadata = options.get("metadata", "").encode()
        ticket = self._sim.join(
            JoinRequest(
                group_id=group_id,
                session_timeout_ms=int(options.get("session", 10_000)),
                rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
                protocol_type=options.get("type", "test"),
                protocols=tuple((name, metadata) for name in names),
                member_id=options.get("id", ""),
                instance_id=options.get("instance"),
                client_id=options.get("client", "c"),
                id_required="old" not in plain,
                may_skip_assignment="skips" in plain,
            )
        )
        return "" if ticket in self._sim.answers else f"#{ticket} waits"

    def _sync(self, group_id: str, _: list[str], options: Options) -> str:
        ticket = self._sim.sync(
            SyncRequest(
                group_id=group_id,
                member_id=options.pop("id"),
                generation=int(options.pop("generation")),
                instance_id=options.pop("instance", None),
                assignments=tuple((name, text.encode("latin-1")) for name, text in options.items()),
            )
        )
        return "" if ticket in self._sim.answers else f"#{ticket} waits"

    def _heartbeat(self, group_id: str, _: list[str], options: Options) -> str:
        self._sim.heartbeat(
            HeartbeatRequest(
                group_id=group_id,
                member_id=options["id"],
                generation=int(options["generation"]),
                instance_id=options.get("instance"),
            )
        )
        return "ok"

    def _leave(self, group_id: str, plain: list[str], options: Options) -> str:
        leaving_members = [LeavingMember(member_id) for member_id in plain]
        if "instance" in options:
            leaving_members.append(LeavingMember(options.get("id", ""), options["instance"]))
        outcomes = self._sim.leave(group_id, leaving_members)
        return " ".join("ok" if outcome is None else outcome.name for outcome in outcomes)

    def _commit(self, group_id: str, _: list[str], options: Options) -> str:
        member_id, number = options.pop("id", ""), int(options.pop("generation", -1))
        offsets = []
        for place, offset in options.items():
            topic, partition = place.split("/")
            offsets.append(OffsetToCommit(topic, int(partition), int(offset)))
        outcomes = self._sim.commit(
            CommitRequest(
                group_id=group_id,
                offsets=tuple(offsets),
                member_id=member_id,
                generation=number,
                reports_unknown_group=self.commits_are_new,
            )
        )
        return " ".join("ok" if outcome is None else outcome.name for outcome in outcomes)

    def _fetch(self, group_id: str, *_: object) -> str:
        kept = self._sim.shard.offsets.fetch(group_id, None)
        return "\n".join(f"{k.topic}/{k.partition} at {k.committed.offset}" for k in kept)

    def _delete(self, group_id: str, *_: object) -> str:
        self._sim.store(self._sim.shard.delete_group(group_id))
        return "ok"

    def _describe(self, group_id: str, *_: object) -> str:
        group = self._sim.shard.describe(group_id)
        lines = [f"{group.state} generation {group.generation} leader {group.leader or '-'}"]
        for member in group.members:
            static = f" ({member.instance_id})" if member.instance_id else ""
            lines.append(f"  {member.member_id}{static}: {member.assignment.decode() or '-'}")
        return "\n".join(lines)

    def _advance(self, by_ms: str, *_: object) -> str:
        self._sim.advance(int(by_ms))
        return ""

    def _restart(self, *_: object) -> str:
        self._sim.restart()
        return ""

    def _expire(self) -> str:
        self._sim.store(self._sim.shard.expire(self._sim.now().wall_ms))
        return ""

    def _set_full(self, *, full: bool) -> str:
        self._sim.is_full = full
        return "nothing can be stored" if full else "facts can be stored"


def fact_text(fact: Fact) -> str:
    """A stored fact as text."""
    match fact:
        case GroupSaved(group_id, generation=number, members=members):
            shares = ", ".join(f"{m.member_id}: {m.assignment.decode() or '-'}" for m in members)
            return f"{group_id} generation {number} [{shares}]"
        case GroupRemoved(group_id):
            return f"the end of {group_id}"
        case OffsetCommitted(group_id, topic, partition, committed):
            return f"{group_id} {topic}/{partition} at {committed.offset}"
        case OffsetRemoved(group_id, topic, partition):
            return f"{group_id} {topic}/{partition} forgotten"
        case _:
            return str(fact)


def answer_text(answer: object) -> str:
    """An answer as text."""
    if isinstance(answer, MainstemError):
        return f"refused: {answer.code.name}" + (
            f" {answer.subject}" if answer.code.name == "MEMBER_ID_REQUIRED" else ""
        )
    if isinstance(answer, JoinAnswer):
        text = f"{answer.member_id} is in generation {answer.generation} ({answer.protocol_name})"
        if answer.members:
            text += f", leads {' '.join(m.member_id for m in answer.members)}"
        return text + (", assignment stands" if answer.skip_assignment else "")
    return f"is assigned {getattr(answer, 'assignment', b'').decode() or 'nothing'}"
