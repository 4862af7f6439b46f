"""Commands for a simulated shard of transactions, one per line, with their effects as text.

init T [timeout=MS] [expected=ID/EPOCH] [two-phase] [keep]
add T ID/EPOCH topic/partition… · write T ID/EPOCH topic/partition [old]
commit T ID/EPOCH [old] · abort T ID/EPOCH [old]
mark T topic/partition · complete T · settle
describe T · records topic/partition · advance MS · restart · full · space · expire
"""

import shlex
from collections.abc import Callable

from tests.kit.simulation.coordination.transaction_simulator import (
    TransactionSimulator,
    WrittenRecord,
)

from mainstem.coordination.transactions.facts import TransactionFact, TransactionRemoved
from mainstem.coordination.transactions.requests import EndRequest, InitRequest
from mainstem.coordination.transactions.settings import TransactionSettings
from mainstem.coordination.transactions.state import (
    NOBODY,
    Partition,
    ProducerIdentity,
    Transaction,
)
from mainstem.model.errors import MainstemError

Words = list[str]
Options = dict[str, str]
Command = Callable[[Words, Options], str]


class TransactionScript:
    """Runs commands and returns their effects as text."""

    def __init__(self) -> None:
        self._sim = TransactionSimulator(TransactionSettings())
        self._commands: dict[str, Command] = {
            "init": self._init,
            "add": self._add,
            "write": self._write,
            "commit": lambda words, _: self._end(words, commit=True),
            "abort": lambda words, _: self._end(words, commit=False),
            "mark": self._mark,
            "complete": self._complete,
            "settle": self._settle,
            "describe": lambda words, _: _described(self._sim.known(words[0])),
            "records": self._records,
            "advance": self._advance,
            "restart": self._restart,
            "expire": lambda *_: f"{self._sim.expire()} forgotten",
            "full": lambda *_: self._set_full(full=True),
            "space": lambda *_: self._set_full(full=False),
        }

    def run(self, line: str) -> str:
        """Run one command; returns its output."""
        name, *words = shlex.split(line)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        stored = len(self._sim.stored)
        try:
            plain = [word for word in words if "=" not in word]
            printed = [self._commands[name](plain, options)]
        except MainstemError as refusal:
            printed = [f"refused: {refusal.code.name}"]
        printed += [f"stored {_fact(fact)}" for fact in self._sim.stored[stored:]]
        return "\n".join(filter(None, printed))

    def _init(self, words: Words, options: Options) -> str:
        answer = self._sim.init(
            InitRequest(
                transactional_id=words[0],
                timeout_ms=int(options.get("timeout", 60_000)),
                expected=_producer(options["expected"]) if "expected" in options else NOBODY,
                two_phase="two-phase" in words,
                keep_prepared="keep" in words,
            )
        )
        text = f"is producer {_identity(answer.producer)}"
        return text + ("" if answer.ongoing == NOBODY else f", keeps {_identity(answer.ongoing)}")

    def _add(self, words: Words, _: Options) -> str:
        self._sim.add(words[0], _producer(words[1]), [_partition(word) for word in words[2:]])
        return ""

    def _write(self, words: Words, _: Options) -> str:
        adds = "old" not in words
        self._sim.write(words[0], _producer(words[1]), _partition(words[2]), adds=adds)
        return ""

    def _end(self, words: Words, *, commit: bool) -> str:
        after = self._sim.end(
            EndRequest(
                transactional_id=words[0],
                producer=_producer(words[1]),
                commit=commit,
                client_version=0 if "old" in words else 2,
            )
        )
        return f"goes on as {_identity(after)}"

    def _mark(self, words: Words, _: Options) -> str:
        self._sim.mark(words[0], _partition(words[1]))
        return ""

    def _complete(self, words: Words, _: Options) -> str:
        self._sim.complete(words[0])
        return ""

    def _settle(self, *_: object) -> str:
        self._sim.settle()
        return ""

    def _records(self, words: Words, _: Options) -> str:
        records = self._sim.partitions[_partition(words[0])].records
        return "\n".join(map(_record, records))

    def _advance(self, words: Words, _: Options) -> str:
        aborted = self._sim.advance(int(words[0]))
        return "\n".join(f"{each} took too long" for each in aborted)

    def _restart(self, *_: object) -> str:
        self._sim.restart()
        return "\n".join(f"{each} has markers to send" for each in self._sim.unmarked)

    def _set_full(self, *, full: bool) -> str:
        self._sim.is_full = full
        return "nothing can be stored" if full else "facts can be stored"


def _producer(text: str) -> ProducerIdentity:
    producer_id, epoch = text.split("/")
    return ProducerIdentity(int(producer_id), int(epoch))


def _partition(text: str) -> Partition:
    topic, partition = text.split("/")
    return topic, int(partition)


def _identity(producer: ProducerIdentity) -> str:
    return f"{producer.producer_id}/{producer.epoch}"


def _described(known: Transaction) -> str:
    places = " ".join(f"{topic}/{partition}" for topic, partition in sorted(known.partitions))
    wrote = ProducerIdentity(known.producer_id, known.epoch)
    text = f"{known.state.label} producer {_identity(wrote)}"
    if known.client != wrote:
        text += f", then {_identity(known.client)}"
    return text + (f", in {places}" if places else "")


def _fact(fact: TransactionFact) -> str:
    if isinstance(fact, TransactionRemoved):
        return f"the end of {fact.transactional_id}"
    return f"{fact.transaction.id}: {_described(fact.transaction)}"


def _record(record: WrittenRecord) -> str:
    outcomes = {None: "open", True: "committed", False: "aborted"}
    return f"{_identity(record.producer)} {outcomes[record.is_committed]}"
