"""Commands for a simulated shard with consumer groups, with their effects as text.

topic T COUNT · drop T · recreate T COUNT
beat G id=M epoch=N [topics=a,b] [pattern=P] [owned=a:0,1;b:2] [instance=I] [assignor=A]
     [patience=MS]
join G client=C [id=M] [instance=I] [topics=a,b] [owned=a:0,1] [protocols=range] [session=MS]
describe G · positions G id=M epoch=N
and sync, heartbeat, leave, commit, fetch, delete, list, advance, restart, full, space, expire of
``group_script``.
"""

from tests.kit.simulation.coordination.group_script import (
    GroupScript,
    Options,
    answer_text,
    fact_text,
)
from tests.kit.simulation.coordination.group_simulator import GroupSimulator
from tests.kit.simulation.coordination.topic_list import TopicList

from mainstem.coordination.classic.consumer_protocol import (
    NamedPartitions,
    assignment_bytes,
    read_assignment,
)
from mainstem.coordination.consumer.facts import (
    EpochMoved,
    FactRemoved,
    MemberMoved,
    MemberSubscribed,
    Partitions,
    PatternResolved,
    TargetMoved,
    TargetSet,
)
from mainstem.coordination.consumer.requests import ConsumerHeartbeat, OffsetReader
from mainstem.coordination.consumer.view import check_fetch
from mainstem.coordination.groups.facts import Fact, GroupSaved
from mainstem.coordination.groups.requests import JoinAnswer, JoinRequest, SyncAnswer
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.shards.primitive_types import INT, SHORT, text

PATIENCE_MS = 60_000


def subscription_bytes(topics: list[str], owned: NamedPartitions) -> bytes:
    """The subscription metadata of a classic consumer."""
    head = SHORT.pack(1) + INT.pack(len(topics)) + b"".join(map(text, topics)) + INT.pack(-1)
    # Owned partitions have the format of an assignment, without its version and user data.
    return head + assignment_bytes(owned, 0)[2:-4]


class ConsumerGroupScript(GroupScript):
    """Runs commands and returns their effects as text."""

    commits_are_new = True

    def __init__(self) -> None:
        super().__init__(
            GroupSimulator(
                GroupSettings(initial_rebalance_delay_ms=0, consumer_members_max=4), TopicList()
            )
        )
        self._commands |= {
            "topic": self._topic,
            "drop": self._drop,
            "recreate": self._recreate,
            "beat": self._beat,
            "join": self._join,
            "describe": self._describe,
            "positions": self._positions,
        }

    def fact_line(self, fact: Fact) -> str:
        """A stored fact as text."""
        match fact:
            case EpochMoved(group_id, epoch):
                line_text = f"{group_id} epoch {epoch}"
            case MemberSubscribed(group_id, member_id, topics=topics, pattern=pattern):
                kind = " (classic)" if fact.classic else ""
                wanted = [*topics, *([f"/{pattern}/"] if pattern else [])]
                line_text = f"{group_id} {member_id}{kind} reads {' '.join(wanted) or 'nothing'}"
            case TargetMoved(group_id, epoch):
                line_text = f"{group_id} target of epoch {epoch}"
            case TargetSet(group_id, member_id, partitions):
                line_text = f"{group_id} target of {member_id}: {self._names_of(partitions)}"
            case MemberMoved(group_id, member_id):
                line_text = f"{group_id} {member_id} {self._state(fact)}"
            case PatternResolved(group_id, pattern, topics):
                line_text = f"{group_id} /{pattern}/ is {' '.join(topics) or 'nothing'}"
            case FactRemoved(kind, group_id, name):
                line_text = f"{group_id} end of {kind.name.lower()} {name}".rstrip()
            case GroupSaved(group_id, generation=number, members=members):
                given = (
                    f"{m.member_id}: {_named(read_assignment(m.assignment).partitions)}"
                    for m in members
                )
                line_text = f"{group_id} generation {number} [{', '.join(given)}]"
            case _:
                line_text = fact_text(fact)
        return line_text

    def answer_line(self, answer: object) -> str:
        """An answer as text."""
        if isinstance(answer, SyncAnswer):
            return f"is assigned {_named(read_assignment(answer.assignment).partitions)}"
        if isinstance(answer, JoinAnswer) and not answer.leader:
            return f"{answer.member_id} is in generation {answer.generation}"
        return answer_text(answer)

    def _topic(self, name: str, plain: list[str], _: Options) -> str:
        self._sim.topics.counts[name] = int(plain[0])
        self._sim.shard.consumers.topic_changed(name)
        return "ok"

    def _drop(self, name: str, *_: object) -> str:
        del self._sim.topics.counts[name]
        self._sim.store(self._sim.shard.offsets.delete_topic(name))
        self._sim.shard.consumers.topic_changed(name)
        return "ok"

    def _recreate(self, name: str, plain: list[str], _: Options) -> str:
        self._sim.topics.recreate(name, int(plain[0]))
        self._sim.shard.consumers.topic_changed(name)
        return "ok"

    def _beat(self, group_id: str, _: list[str], options: Options) -> str:
        epoch = int(options["epoch"])
        owned = options.get("owned", "" if epoch == 0 else None)
        patience = options.get("patience", str(PATIENCE_MS) if epoch == 0 else "-1")
        topics = options.get("topics")
        answer = self._sim.consumer_heartbeat(
            ConsumerHeartbeat(
                group_id=group_id,
                member_id=options["id"],
                epoch=epoch,
                instance_id=options.get("instance"),
                rebalance_timeout_ms=int(patience),
                topics=None if topics is None else tuple(filter(None, topics.split(","))),
                pattern=options.get("pattern"),
                assignor=options.get("assignor"),
                owned=None if owned is None else self._ids(_parsed(owned)),
                makes_id=True,
            )
        )
        has = "" if answer.assigned is None else f", has {self._names_of(answer.assigned)}"
        return f"{answer.member_id} is in epoch {answer.epoch}{has}"

    def _join(self, group_id: str, plain: list[str], options: Options) -> str:
        names = options.get("protocols", "range").split(",")
        topics = list(filter(None, options.get("topics", "").split(",")))
        metadata = subscription_bytes(topics, _parsed(options.get("owned", "")))
        ticket = self._sim.join(
            JoinRequest(
                group_id=group_id,
                session_timeout_ms=int(options.get("session", 10_000)),
                rebalance_timeout_ms=PATIENCE_MS,
                protocol_type="consumer",
                protocols=tuple((name, metadata) for name in names),
                member_id=options.get("id", ""),
                instance_id=options.get("instance"),
                client_id=options.get("client", "c"),
                id_required="old" not in plain,
                may_skip_assignment=True,
            )
        )
        return "" if ticket in self._sim.answers else f"#{ticket} waits"

    def _sync(self, group_id: str, plain: list[str], options: Options) -> str:
        for name in options.keys() - {"id", "generation", "instance"}:
            options[name] = assignment_bytes(_parsed(options[name]), 1).decode("latin-1")
        return super()._sync(group_id, plain, options)

    def _describe(self, group_id: str, *rest: object) -> str:
        if self._sim.shard.consumers.get(group_id) is None:
            return self._describe_classic(group_id)
        group = self._sim.shard.describe_consumers(group_id)
        lines = [
            f"{group.state} epoch {group.epoch} target {group.target_epoch} by {group.assignor}"
        ]
        for member in group.members:
            static = f" ({member.instance_id})" if member.instance_id else ""
            kind = " classic" if member.is_classic else ""
            lines.append(
                f"  {member.member_id}{static}{kind} epoch {member.epoch}:"
                f" {self._names_of(member.assigned)} -> {self._names_of(member.target)}"
            )
        return "\n".join(lines)

    def _describe_classic(self, group_id: str) -> str:
        group = self._sim.shard.describe(group_id)
        lines = [f"{group.state} generation {group.generation} (classic)"]
        for member in group.members:
            given = _named(read_assignment(member.assignment).partitions)
            lines.append(f"  {member.member_id}: {given}")
        return "\n".join(lines)

    def _positions(self, group_id: str, _: list[str], options: Options) -> str:
        group = self._sim.shard.consumers.get(group_id)
        assert group is not None, "positions are checked in consumer groups only"
        check_fetch(group, OffsetReader(options["id"], int(options["epoch"])))
        return self._fetch(group_id)

    def _ids(self, named: NamedPartitions) -> Partitions:
        return {self._sim.topics.id_of(name): found for name, found in named.items()}

    def _names_of(self, partitions: Partitions) -> str:
        known = {self._sim.topics.id_of(name): name for name in self._sim.topics.counts}
        return _named({known.get(topic, "?"): found for topic, found in partitions.items()})

    def _state(self, fact: MemberMoved) -> str:
        state = fact.state.name.lower()
        line_text = f"in epoch {fact.epoch} {state} has {self._names_of(fact.assigned)}"
        return (
            f"{line_text}, gives up {self._names_of(fact.revoking)}" if fact.revoking else line_text
        )


def _parsed(line_text: str) -> NamedPartitions:
    parts = (part.split(":") for part in line_text.split(";") if part)
    return {name: frozenset(map(int, indexes.split(","))) for name, indexes in parts}


def _named(partitions: NamedPartitions) -> str:
    parts = (
        f"{name}:{','.join(map(str, sorted(partitions[name])))}" for name in sorted(partitions)
    )
    return " ".join(parts) or "nothing"
