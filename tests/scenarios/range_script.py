"""Commands for one stream on a few nodes, one per line, and what happens as text.

cluster REPLICAS [acks=N] [nodes=N] [flush=written]   begin; node 0 writes range 0 under epoch 1
produce NODE COUNT          a client sends a batch of COUNT records to a node
deliver TO [Kind …]         what is on its way to a node (or to ``catalogue``) arrives, in order
drop TO [Kind …]            or is lost
store NODE                  the disk of a node does what it was asked to do
settle                      deliver and store until nothing moves; no time passes
advance MS                  time passes, in steps of half a second; nothing is delivered
hold NODE · release NODE    ``settle`` leaves a node alone: it lags
cut NODE · heal NODE        its messages to and from others are lost: a network partition
kill NODE · start NODE      its process ends; what it sent to others is still on its way
power-off NODE              the same, and what was not synced is lost
blank-disk NODE             its disk is replaced by an empty one
elect NODE                  the catalogue names a new writer, under the next epoch
seal NODE [to=NODE]         the writer rolls its range, or hands the stream over
learn NODE                  a node learns from the catalogue which of its ranges are sealed
status                      the ranges of the catalogue, and what every node holds

Single steps print every message as it is sent; ``settle`` prints refusals and results only. Records
are named by their offsets: ``0-2`` are three records. After every step the invariants of the
simulator are checked: an acknowledged record that is lost fails a scenario whatever it expects.
"""

from collections.abc import Callable

from tests.kit.simulation.ranges.messages import (
    Append,
    Fence,
    RangeSimMessage,
    RangeSimSettings,
    SealOutcome,
)
from tests.kit.simulation.ranges.simulator import TICK_MS, RangeSimulator
from tests.kit.simulation.ranges.writer_role import SimWriterRole
from tests.scenarios.range_text import message_text, range_text, span

from mainstem.model.ids import Epoch, NodeId
from mainstem.model.metadata import Range
from mainstem.streams.failover.sealing import SealRequest
from mainstem.streams.replica.state_machine import Refusal

Words = list[str]
Options = dict[str, str]
Command = Callable[[Words, Options], None]

CATALOGUE = "catalogue"
SETTLE_MAX = 500


class RangeScript:
    """Runs commands and prints what they cause."""

    def __init__(self) -> None:
        self._sim: RangeSimulator
        self._held: set[str] = set()
        self._cut: set[str] = set()
        self._down: set[str] = set()
        self._seen = _Seen()
        self._out: list[str] = []
        self._commands: dict[str, Command] = {
            "cluster": self._cluster,
            "produce": self._produce,
            "deliver": self._deliver,
            "drop": self._drop,
            "store": lambda words, _: self._store(words[0]),
            "settle": self._settle,
            "advance": self._advance,
            "hold": lambda words, _: self._held.add(words[0]),
            "release": lambda words, _: self._held.remove(words[0]),
            "cut": lambda words, _: self._cut.add(words[0]),
            "heal": lambda words, _: self._cut.remove(words[0]),
            "kill": lambda words, _: self._stop(words[0], loses_power=False),
            "power-off": lambda words, _: self._stop(words[0], loses_power=True),
            "start": lambda words, _: self._down.remove(words[0]),
            "blank-disk": lambda words, _: self._sim.replace_disk(_node(words[0])),
            "elect": lambda words, _: self._sim.elect(_node(words[0])),
            "seal": self._seal,
            "learn": self._learn,
            "status": self._status,
        }

    def run(self, line: str) -> str:
        """Run one command; its output."""
        self._out = []
        name, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        self._commands[name]([word for word in words if "=" not in word], options)
        self._observe(quiet=name == "settle")
        return "\n".join(self._out)

    def _cluster(self, words: Words, options: Options) -> None:
        replicas = int(words[0])
        self._sim = RangeSimulator(
            RangeSimSettings(
                nodes=int(options.get("nodes", replicas)),
                replicas=replicas,
                acks=int(options.get("acks", replicas // 2 + 1)),
                acks_unsynced=options.get("flush") == "written",
            )
        )

    def _produce(self, words: Words, _: Options) -> None:
        role = self._role(words[0])
        if role is None or not role.is_alive:
            self._out.append(f"refused: node {words[0]} is not the writer")
        elif role.writer is None:
            self._out.append(f"refused: node {words[0]} has not taken over yet")
        else:
            self._sim.produce(role, int(words[1]))

    def _deliver(self, words: Words, _: Options) -> None:
        for message in self._under_way(words):
            self._arrive(message)
            self._observe()

    def _drop(self, words: Words, _: Options) -> None:
        for message in self._under_way(words):
            self._sim.bag.remove(message)

    def _store(self, word: str, *, quiet: bool = False) -> None:
        node = _node(word)
        while self._sim.nodes[node].has_work:
            self._sim.store(node)
            self._observe(quiet=quiet)

    def _settle(self, *_: object) -> None:
        for _round in range(SETTLE_MAX):
            moving = [each for each in self._sim.bag if self._target(each) not in self._held]
            busy = [
                str(name)
                for name, node in self._sim.nodes.items()
                if node.has_work and str(name) not in self._held
            ]
            if not moving and not busy:
                return
            for message in moving:
                self._arrive(message)
                self._observe(quiet=True)
            for word in busy:
                self._store(word, quiet=True)
        raise AssertionError("messages go round in circles")

    def _advance(self, words: Words, _: Options) -> None:
        for _step in range(int(words[0]) // TICK_MS):
            self._sim.tick()
            self._observe()

    def _stop(self, word: str, *, loses_power: bool) -> None:
        self._seen.stopped |= {role.epoch for role in self._sim.roles if str(role.node) == word}
        self._down.add(word)
        self._sim.bag = [
            message
            for message in self._sim.bag
            if not self._source(message) == self._target(message) == word
        ]
        self._sim.stop(_node(word), loses_power=loses_power)

    def _seal(self, words: Words, options: Options) -> None:
        role = self._role(words[0])
        assert role is not None, f"node {words[0]} was never the writer"
        self._sim.seal(role, new_writer=_node(options["to"]) if "to" in options else None)

    def _learn(self, words: Words, _: Options) -> None:
        node = _node(words[0])
        sealed = [one for one in self._sim.catalogue.stream.ranges if one.end is not None]
        before = {one.index: one.start + len(self._values(node, one)) for one in sealed}
        self._sim.notify_sealed(node)
        for one in (one for one in sealed if node in one.replicas):
            held = one.start + len(self._values(node, one))
            if held < before[one.index]:
                self._out.append(f"{node} removes {span(held, before[one.index])}")
            elif held > before[one.index]:
                self._out.append(f"{node} copies {span(before[one.index], held)} from a peer")
            is_done = (one.index, node, self._sim.nodes[node].directory) in self._sim.catalogue.done
            is_whole = "is complete" if is_done else "is not complete"
            self._out.append(f"range {one.index} {is_whole} on {node}")

    def _status(self, *_: object) -> None:
        stream = self._sim.catalogue.stream
        self._out.append(f"epoch {stream.epoch}, writer {stream.writer}")
        for one in self._sim.catalogue.ranges:
            self._out.append(range_text(one))
            for name, node in self._sim.nodes.items():
                if node.values(one.index):
                    held = span(one.start, one.start + len(node.values(one.index)))
                    synced = span(one.start, one.start + node.synced(one.index))
                    self._out.append(f"  {name} holds {held}, on disk {synced}")

    def _role(self, word: str) -> SimWriterRole | None:
        """The newest term of office of a node."""
        return next((role for role in self._sim.roles[::-1] if str(role.node) == word), None)

    def _values(self, node: NodeId, one: Range) -> list[int]:
        return self._sim.nodes[node].values(one.index)

    def _under_way(self, words: Words) -> list[RangeSimMessage]:
        to, *kinds = words
        return [
            message
            for message in self._sim.bag
            if self._target(message) == to
            and (not kinds or type(message.content).__name__ in kinds)
        ]

    def _arrive(self, message: RangeSimMessage) -> None:
        source, target = self._source(message), self._target(message)
        is_cut = source != target and not self._cut.isdisjoint((source, target))
        place = next(at for at, each in enumerate(self._sim.bag) if each is message)
        if is_cut or target in self._down:
            self._sim.drop(place)
        else:
            self._sim.deliver(place)

    def _source(self, message: RangeSimMessage) -> str:
        content = message.content
        if message.sender is not None:
            return str(message.sender)
        match content:
            case SealOutcome():
                return CATALOGUE
            case Append() | Fence():
                return self._writer_of(content.epoch)
            case SealRequest():
                return self._writer_of(content.end.epoch)
            case _:
                assert message.to_epoch is not None
                return self._writer_of(message.to_epoch)

    def _target(self, message: RangeSimMessage) -> str:
        if message.to_catalogue:
            return CATALOGUE
        if message.to_node is not None:
            return str(message.to_node)
        assert message.to_epoch is not None
        return self._writer_of(message.to_epoch)

    def _writer_of(self, epoch: Epoch) -> str:
        return next(str(role.node) for role in self._sim.roles if role.epoch == epoch)

    def _observe(self, *, quiet: bool = False) -> None:
        """Print what is new since the last look."""
        sim, seen = self._sim, self._seen
        known = {id(message) for message in seen.bag}
        for message in sim.bag:
            if id(message) not in known and (not quiet or _is_refusal(message)):
                route = f"{self._source(message)} -> {self._target(message)}"
                self._out.append(f"{route} {message_text(message)}")
        seen.bag = list(sim.bag)
        if len(sim.acked) > seen.acked:
            self._out.append(f"acknowledged {span(seen.acked, len(sim.acked))}")
        seen.acked = len(sim.acked)
        for one in sim.catalogue.ranges[seen.ranges - 1 :]:
            if one.index >= seen.ranges or one.end is not None:
                self._out.append(range_text(one))
        seen.ranges = len(sim.catalogue.ranges)
        for role in sim.roles:
            if not role.is_alive and role.epoch not in seen.stopped:
                seen.stopped.add(role.epoch)
                self._out.append(f"{role.node} stands down from epoch {role.epoch}")


class _Seen:
    """What was printed already."""

    def __init__(self) -> None:
        self.bag: list[RangeSimMessage] = []
        self.acked = 0
        self.ranges = 1
        self.stopped: set[Epoch] = set()


def _is_refusal(message: RangeSimMessage) -> bool:
    content = message.content
    return isinstance(content, Refusal) or (
        isinstance(content, SealOutcome) and content.stream is None
    )


def _node(word: str) -> NodeId:
    return NodeId(int(word))
