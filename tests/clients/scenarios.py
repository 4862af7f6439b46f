"""What every real client must be able to do, as code that is the same for all of them.

A scenario sets a scene, sends the client under test on errands and compares contents. It raises
when the server (or the client's view of it) is wrong.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Protocol

from bench.wire import stored_batches
from tests.clients.client import Client, Running
from tests.clients.errand import Errand
from tests.clients.oracle import Oracle
from tests.clients.records import Record, read_file, write_file

KIB, MIB = 1 << 10, 1 << 20
TEXT = bytes.maketrans(bytes(range(256)), (b"abcdefghijklmnopqrstuvwxyz0123456789" * 8)[:256])
FIRST_TIME_MS = 1_700_000_000_000
TAKE_OVER_TIMEOUT_S = 180.0


class Server(Protocol):
    """What runs under the scenarios: a node or Apache Kafka."""

    kafka: str

    def start(self) -> None: ...
    def kill9(self) -> None: ...


@dataclass(frozen=True)
class Scale:
    """How much of each thing; the default is the full volume."""

    messages: int = 100_000
    per_codec: int = 5_000
    sizes: tuple[int, ...] = (1, 64 * KIB, MIB, 10 * MIB)
    per_size: int = 10
    # 0: the client's own default decides how long a killed consumer is waited for.
    session_timeout_ms: int = 0


@dataclass(frozen=True)
class Scene:
    """One scenario's surroundings: the client under test, the server, a place for files."""

    client: Client
    server: Server
    scratch: Path
    scale: Scale = field(default_factory=Scale)
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def oracle(self) -> Oracle:
        return Oracle(self.server.kafka)

    @property
    def topic(self) -> str:
        return f"topic-{self.prefix}"

    @property
    def group(self) -> str:
        return f"group-{self.prefix}"

    def errand(self, op: str) -> Errand:
        return Errand(
            op=op,
            bootstrap=self.server.kafka,
            topic=self.topic,
            group=self.group,
            input=str(self.scratch / f"{self.prefix}-sent.jsonl"),
            output=str(self.scratch / f"{self.prefix}-received.jsonl"),
        )

    def create(self, partitions: int, configs: dict[str, str] | None = None) -> None:
        """The client creates the topic if it is able to."""
        if "admin" in self.client.lacks:
            self.oracle.create(self.topic, partitions, configs)
            return
        wanted = replace(self.errand("create"), partitions=partitions, configs=configs or {})
        self.client.run(wanted)

    def produce(self, records: list[Record], *, codec: str = "", max_record_bytes: int = 0) -> None:
        errand = self.errand("produce")
        write_file(Path(errand.input), records)
        self.client.run(replace(errand, codec=codec, max_record_bytes=max_record_bytes))

    def consume(self, count: int, *, max_record_bytes: int = 0) -> list[Record]:
        errand = replace(self.errand("consume"), count=count, max_record_bytes=max_record_bytes)
        self.client.run(errand)
        return list(read_file(Path(errand.output)))


def creates_a_topic(scene: Scene) -> None:
    """A topic created by the client has the partitions and settings asked for."""
    if "admin" in scene.client.lacks:
        scene.client.run(scene.errand("create"))
        assert scene.oracle.partitions(scene.topic) == [0]
        return
    scene.create(3, {"retention.ms": "123456789", "max.message.bytes": "2000000"})
    assert scene.oracle.partitions(scene.topic) == [0, 1, 2]
    assert scene.oracle.config(scene.topic, "retention.ms") == "123456789"
    assert scene.oracle.config(scene.topic, "max.message.bytes") == "2000000"


def passes_many_messages_once_each(scene: Scene) -> None:
    """Every message comes back once, in a group, and the group's commits cover all of them."""
    scene.create(3)
    sent = _messages(scene.scale.messages, seed=1, client=scene.client)
    scene.produce(sent)
    received = scene.consume(len(sent))
    _check_same(sent, received)
    _check_offsets(received)
    ends = scene.oracle.end_offsets(scene.topic)
    assert sum(ends.values()) == len(sent), f"more was stored than sent: {ends}"
    assert scene.oracle.committed(scene.group, scene.topic) == ends


def passes_every_codec(scene: Scene) -> None:
    """Compressed messages are stored as the client compressed them and come back the same."""
    for codec in scene.client.codecs:
        one = replace(scene, prefix=f"{scene.prefix}-{codec}")
        one.create(1)
        # Some clients send a batch as it is when compressing does not make it smaller.
        sent = [
            Record(value=b"%08d " % number + b"compressible " * 7)
            for number in range(one.scale.per_codec)
        ]
        one.produce(sent, codec=codec)
        received = one.consume(len(sent))
        _check_same(sent, received)
        _check_offsets(received)
        # Looked at last: some clients ask for no more than acks=1, and what is so acknowledged can
        # be read a moment later.
        codecs = {
            batch.codec for batch in stored_batches(one.oracle.writer(one.topic), one.topic, 0)
        }
        assert codecs == {codec}, f"asked for {codec}, stored as {codecs}"


def passes_small_and_large_messages(scene: Scene) -> None:
    """Messages from one byte to ten mebibytes pass once the topic's limit is raised."""
    for size in scene.scale.sizes:
        one = replace(scene, prefix=f"{scene.prefix}-{size}")
        one.create(1, {"max.message.bytes": str(11 * MIB)})
        random = Random(size)
        values = [_text(random, size) for _ in range(one.scale.per_size)]
        sent = [Record(value=value) for value in values]
        largest = size if size > MIB // 2 else 0
        one.produce(sent, max_record_bytes=largest)
        received = one.consume(len(sent), max_record_bytes=largest)
        _check_same(sent, received)


def seeks_into_a_batch_and_by_time(scene: Scene) -> None:
    """A read starts exactly at the offset or time asked for, though batches are stored whole."""
    scene.oracle.create(scene.topic, 1)
    sent = [
        Record(key=b"k%d" % number, value=b"value %d" % number, timestamp_ms=time_ms)
        for number in range(3_000)
        for time_ms in [FIRST_TIME_MS + 1_000 * number]
    ]
    scene.oracle.produce(scene.topic, sent, linger_ms=200)
    batches = stored_batches(scene.oracle.writer(scene.topic), scene.topic, 0)
    largest = max(batches, key=lambda batch: batch.record_count)
    assert largest.record_count > 100, "the scene needs a batch to seek into"
    middle = largest.base_offset + largest.record_count // 2

    by_offset = replace(scene.errand("read"), offset=middle, count=20)
    scene.client.run(by_offset)
    _check_run(sent, list(read_file(Path(by_offset.output))), start=middle)

    by_time = replace(
        scene.errand("read"), timestamp_ms=FIRST_TIME_MS + 1_000 * middle - 1, count=20
    )
    scene.client.run(by_time)
    _check_run(sent, list(read_file(Path(by_time.output))), start=middle)


def keeps_committed_offsets(scene: Scene) -> None:
    """A group goes on where it committed, though the server was killed in between."""
    scene.create(3)
    sent = _messages(2_000, seed=3, client=scene.client)
    scene.produce(sent)
    first = scene.consume(700)
    assert sum(scene.oracle.committed(scene.group, scene.topic).values()) == 700
    scene.server.kill9()
    scene.server.start()
    second = scene.consume(len(sent) - 700)
    _check_same(sent, first + second)
    _check_offsets(first + second)


def keeps_every_field(scene: Scene) -> None:
    """Headers, null keys, tombstones and timestamps come back as they were sent."""
    scene.create(1)
    sent = [record for lack, record in _FIELDS if lack not in scene.client.lacks]
    if "timestamps" in scene.client.lacks:
        sent = [replace(record, timestamp_ms=None) for record in sent]
    started_ms = time.time() * 1_000
    scene.produce(sent)
    received = sorted(scene.consume(len(sent)), key=lambda record: record.offset or 0)
    for before, after in zip(sent, received, strict=True):
        assert after.content == before.content
        assert after.timestamp_ms is not None
        if before.timestamp_ms is not None:
            assert after.timestamp_ms == before.timestamp_ms
        else:
            assert started_ms - 60_000 < after.timestamp_ms < time.time() * 1_000 + 60_000


def shares_partitions_and_takes_over(scene: Scene) -> None:
    """Two members of a group share the partitions; when one is killed the other has them all."""
    partitions = 4
    scene.create(partitions)
    session = scene.scale.session_timeout_ms
    first, second = (
        replace(
            scene.errand("member"),
            output=str(scene.scratch / f"{scene.prefix}-member-{number}.jsonl"),
            session_timeout_ms=session,
        )
        for number in (1, 2)
    )
    wave = _Waves(scene, partitions, [Path(first.output), Path(second.output)])
    with scene.client.started(first) as one, scene.client.started(second) as two:
        wave.until(lambda by: all(by) and not by[0] & by[1], "shared", alive=[one, two])
        one.kill()
        everything = set(range(partitions))
        wave.until(lambda by: by[1] == everything, "taken over", alive=[two])
        wave.check_nothing_lost()


class _Waves:
    """Sends a record to every partition again and again and watches who receives it."""

    def __init__(self, scene: Scene, partitions: int, outputs: list[Path]) -> None:
        self._scene = scene
        self._partitions = partitions
        self._outputs = outputs
        self._sent: set[bytes] = set()

    def until(
        self, done: Callable[[list[set[int]]], bool], title: str, *, alive: list[Running]
    ) -> None:
        """Send until a wave reached every partition's reader in the way that ``done`` wants."""
        deadline = time.monotonic() + TAKE_OVER_TIMEOUT_S
        while time.monotonic() < deadline:
            mark = uuid.uuid4().hex
            values = {b"%s %d" % (mark.encode(), p): p for p in range(self._partitions)}
            records = [Record(value=value, partition=p) for value, p in values.items()]
            self._scene.oracle.produce(self._scene.topic, records)
            self._sent |= set(values)
            if done(self._await(values, alive)):
                return
        seen = [len(list(read_file(path))) if path.exists() else 0 for path in self._outputs]
        logs = "\n".join(running.printed() for running in alive)
        raise AssertionError(f"partitions were not {title} in time; received {seen}\n{logs}")

    def check_nothing_lost(self) -> None:
        received = {
            record.value for path in self._outputs if path.exists() for record in read_file(path)
        }
        assert self._sent <= received, f"{len(self._sent - received)} records reached nobody"

    def _await(self, values: dict[bytes, int], alive: list[Running]) -> list[set[int]]:
        """The partitions of this wave that each member received, once all or 2 s have passed."""
        until = time.monotonic() + 2
        while True:
            for running in alive:
                running.check_alive()
            by_member = [
                {
                    values[record.value]
                    for record in (read_file(path) if path.exists() else ())
                    if record.value in values
                }
                for path in self._outputs
            ]
            if set().union(*by_member) == set(values.values()) or time.monotonic() > until:
                return by_member
            time.sleep(0.2)


def _messages(count: int, *, seed: int, client: Client) -> list[Record]:
    """Distinct messages of 100 bytes, every other one with a key."""
    random = Random(seed)
    make = _text if "binary" in client.lacks else _noise
    return [
        Record(
            key=b"key-%d" % (number % 1_000) if number % 2 else None,
            value=b"%08d " % number + make(random, 91),
        )
        for number in range(count)
    ]


def _noise(random: Random, size: int) -> bytes:
    return random.randbytes(size)


def _text(random: Random, size: int) -> bytes:
    return random.randbytes(size).translate(TEXT)


def _check_same(sent: Iterable[Record], received: Iterable[Record]) -> None:
    wanted = Counter(record.content for record in sent)
    found = Counter(record.content for record in received)
    missing, extra = wanted - found, found - wanted
    if missing or extra:
        samples = [str(content)[:120] for content in [*missing][:2] + [*extra][:2]]
        raise AssertionError(
            f"{missing.total()} messages missing, {extra.total()} too many, such as {samples}"
        )


def _check_offsets(received: Iterable[Record]) -> None:
    """Each partition's offsets are 0, 1, 2 … in the order the client saw them."""
    expected: dict[int | None, int] = {}
    for record in received:
        wanted = expected.get(record.partition, 0)
        assert record.offset == wanted, f"offset {record.offset} where {wanted} was due"
        expected[record.partition] = wanted + 1


def _check_run(sent: list[Record], received: list[Record], *, start: int) -> None:
    wanted = [(number, sent[number].content) for number in range(start, start + len(received))]
    assert [(record.offset, record.content) for record in received] == wanted
    assert received, "nothing was read"


_FIELDS = [
    (
        "",
        Record(
            key=b"k1",
            value=b"with headers",
            headers=(("trace", b"1"), ("trace", b"2"), ("empty", b""), ("other", b"3")),
            timestamp_ms=FIRST_TIME_MS,
        ),
    ),
    ("", Record(key=None, value=b"without a key", timestamp_ms=FIRST_TIME_MS + 1)),
    ("", Record(key=b"k3", value=None, timestamp_ms=FIRST_TIME_MS + 2)),
    ("empty value", Record(key=b"k4", value=b"", timestamp_ms=FIRST_TIME_MS + 3)),
    ("null header", Record(key=b"k5", value=b"v", headers=(("none", None),))),
    ("", Record(key="schlüssel".encode(), value="größe ⚙".encode(), timestamp_ms=1)),
    ("binary", Record(key=bytes(range(256)), value=bytes(range(255, -1, -1)))),
]

Scenario = Callable[[Scene], None]
SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        creates_a_topic,
        passes_many_messages_once_each,
        passes_every_codec,
        passes_small_and_large_messages,
        seeks_into_a_batch_and_by_time,
        keeps_every_field,
        keeps_committed_offsets,
        shares_partitions_and_takes_over,
    )
}
