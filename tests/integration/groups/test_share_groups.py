"""Share groups (KIP-932), as librdkafka's share consumers use them."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.integration.groups.settings import configure
from tests.kit.waiting import wait_until

from mainstem.cli.main import main
from mainstem.testing.local_node import LocalNode

PATIENCE_S = 30.0
LOCK_MS = 1_500
INVALID_RECORD_STATE = 121
ARGUMENTS = (
    "--set", "share.heartbeat_interval_ms=200",
    "--set", "share.session_timeout_ms=3000",
    "--set", f"share.lock_duration_ms={LOCK_MS}",
    "--set", "share.lock_duration_min_ms=1000",
)  # fmt: skip

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
Verdict = Callable[[Message], AcknowledgeType]


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with LocalNode(arguments=ARGUMENTS) as running:
        yield running


@pytest.fixture
def topic(node: LocalNode, request: pytest.FixtureRequest) -> str:
    """A topic of one partition with a hundred records, and a group that reads them all."""
    name = str(request.node.originalname)
    create(node, name, 1)
    configure(node, name, "share.auto.offset.reset", "earliest")
    produce(node, name, range(100))
    return name


def create(node: LocalNode, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()


def produce(node: LocalNode, topic: str, numbers: range, partitions: int = 1) -> None:
    producer = Producer({"bootstrap.servers": node.kafka})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


def deliveries(message: Message) -> int:
    count = message.delivery_count()
    assert count is not None
    return count


class Sharer:
    """A share consumer in a thread: what it was given, as (number, delivery count)."""

    def __init__(
        self, node: LocalNode, group: str, *topics: str, verdict: Verdict | None = None, **more: Any
    ) -> None:
        self.read: list[tuple[int, int]] = []
        self.errors: list[str] = []
        self.acked: Counter[bool] = Counter()
        self._verdict = verdict
        self._halt = threading.Event()
        self.consumer = ShareConsumer(
            {
                "bootstrap.servers": node.kafka,
                "group.id": group,
                "share.acknowledgement.mode": "implicit" if verdict is None else "explicit",
            }
            | {name.replace("_", "."): value for name, value in more.items()}
        )
        self.consumer.set_acknowledgement_commit_callback(self._count)
        self.consumer.subscribe(list(topics or (group,)))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _count(self, offsets: dict[Any, set[int]], error: KafkaException | None) -> None:
        self.acked[error is None] += sum(map(len, offsets.values()))

    def _run(self) -> None:
        while not self._halt.is_set():
            try:
                messages = self.consumer.poll(0.1)
            except KafkaException as fatal:
                self.errors.append(str(fatal))
                return
            for message in messages:
                error = message.error()
                if error is not None:
                    self.errors.append(str(error))
                    continue
                self.read.append((int(message.value() or b""), deliveries(message)))
                if self._verdict is not None:
                    self.consumer.acknowledge(message, self._verdict(message))

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.read]

    def halt(self) -> None:
        self._halt.set()
        self._thread.join(PATIENCE_S)
        self.consumer.close()


@contextmanager
def sharer(node: LocalNode, group: str, *topics: str, **more: Any) -> Iterator[Sharer]:
    running = Sharer(node, group, *topics, **more)
    try:
        yield running
    finally:
        running.halt()


def some_of(consumer: ShareConsumer) -> list[Message]:
    """The first records that a consumer is given."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if held := list(consumer.poll(0.2)):
            return held
    raise AssertionError("nothing is given to it")


def all_of(*members: Sharer) -> Counter[int]:
    return Counter(number for each in members for number in each.numbers)


def test_members_of_a_group_share_the_records_of_one_partition(node: LocalNode, topic: str) -> None:
    few = {"max_poll_records": 10}
    written = 100
    with sharer(node, topic, **few) as first, sharer(node, topic, **few) as second:

        def both_were_given_some() -> bool:
            nonlocal written
            produce(node, topic, range(written, written + 100))
            written += 100
            wait_until(lambda: len(all_of(first, second)) == written)
            return bool(first.read and second.read)

        wait_until(both_were_given_some)
        assert max(all_of(first, second).values()) == 1, "each record is one member's"
        assert {count for _, count in first.read + second.read} == {1}
    last = range(written, written + 10)
    with sharer(node, topic) as late:
        produce(node, topic, last)
        wait_until(lambda: len(late.numbers) == 10)
        assert late.numbers == list(last), "what was accepted does not come again"


def test_two_groups_are_each_given_everything(node: LocalNode, topic: str) -> None:
    configure(node, f"{topic}-2", "share.auto.offset.reset", "earliest")
    with sharer(node, topic) as one, sharer(node, f"{topic}-2", topic) as other:
        wait_until(lambda: sorted(one.numbers) == sorted(other.numbers) == list(range(100)))


def test_a_group_begins_at_the_end_unless_told_otherwise(node: LocalNode) -> None:
    create(node, "latest", 2)
    produce(node, "latest", range(50), partitions=2)
    with sharer(node, "latest") as only:

        def new() -> bool:
            produce(node, "latest", range(100, 102), partitions=2)
            return {100, 101} <= set(only.numbers)

        wait_until(new)
        assert not set(only.numbers) & set(range(50))


def test_what_is_released_comes_again_and_what_is_rejected_does_not(
    node: LocalNode, topic: str
) -> None:
    def verdict(message: Message) -> AcknowledgeType:
        number = int(message.value() or b"")
        if number % 10 == 0:
            return REJECT
        if number % 10 == 1 and deliveries(message) < 3:
            return RELEASE
        return ACCEPT

    with sharer(node, topic, verdict=verdict) as only:
        wait_until(lambda: len(only.read) == 100 + 2 * 10)
        again = Counter(only.numbers)
        assert {number for number, count in again.items() if count == 3} == set(range(1, 100, 10))
        assert all(again[number] == 1 for number in range(100) if number % 10 != 1)
        counts = [count for number, count in only.read if number == 11]
        assert counts == [1, 2, 3]
        wait_until(lambda: only.acked[True] == 120)
        assert not only.acked[False]
    with sharer(node, topic) as late:
        produce(node, topic, range(100, 101))
        wait_until(lambda: late.numbers == [100])


def test_a_record_that_nobody_can_use_is_given_up(node: LocalNode, topic: str) -> None:
    configure(node, topic, "share.delivery.count.limit", "3")

    def verdict(message: Message) -> AcknowledgeType:
        return RELEASE if message.value() == b"7" else ACCEPT

    with sharer(node, topic, verdict=verdict) as only:
        wait_until(lambda: len(only.read) == 102)
        produce(node, topic, range(100, 110))
        wait_until(lambda: len(only.read) == 112)
        assert [count for number, count in only.read if number == 7] == [1, 2, 3]


def explicit(node: LocalNode, topic: str) -> ShareConsumer:
    consumer = ShareConsumer(
        {
            "bootstrap.servers": node.kafka,
            "group.id": topic,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([topic])
    return consumer


def test_what_a_silent_member_holds_goes_to_another_when_the_lock_ends(
    node: LocalNode, topic: str
) -> None:
    holder, successor = explicit(node, topic), explicit(node, topic)
    held = some_of(holder)
    taken = some_of(successor)
    assert {message.offset() for message in taken} & {message.offset() for message in held}
    assert {deliveries(message) for message in taken} == {2}
    for message in held:
        holder.acknowledge(message)
    [outcome] = holder.commit_sync(PATIENCE_S).values()
    assert outcome is not None, "it is too late to acknowledge"
    assert outcome.args[0].code() == INVALID_RECORD_STATE
    for message in taken:
        successor.acknowledge(message)
    assert list(successor.commit_sync(PATIENCE_S).values()) == [None]
    holder.close()
    successor.close()


def test_a_member_that_leaves_gives_back_what_it_did_not_acknowledge(
    node: LocalNode, topic: str
) -> None:
    configure(node, topic, "share.record.lock.duration.ms", "60000")
    leaver = explicit(node, topic)
    held = some_of(leaver)
    accepted = int(held[0].value() or b"")
    leaver.acknowledge(held[0])
    assert list(leaver.commit_sync(PATIENCE_S).values()) == [None]
    leaver.close()
    with sharer(node, topic) as successor:
        wait_until(lambda: set(successor.numbers) == set(range(100)) - {accepted})


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_records_of_aborted_transactions_are_hidden_on_demand(
    node: LocalNode, isolation: str
) -> None:
    name = f"isolation-{isolation}"
    create(node, name, 1)
    configure(node, name, "share.auto.offset.reset", "earliest")
    configure(node, name, "share.isolation.level", isolation)
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    for first, commits in ((0, True), (10, False), (20, True)):
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce(name, str(number).encode(), partition=0)
        assert producer.flush(PATIENCE_S) == 0
        if commits:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    committed = [*range(10), *range(20, 30)]
    with sharer(node, name) as only:
        wanted = committed if isolation == "read_committed" else list(range(30))
        wait_until(lambda: sorted(only.numbers) == wanted)
    with sharer(node, name) as late:
        produce(node, name, range(30, 31))
        wait_until(lambda: late.numbers == [30])


def test_what_was_acknowledged_stays_so_when_the_node_is_killed_or_stopped() -> None:
    with LocalNode(arguments=ARGUMENTS) as node:
        create(node, "lasting", 4)
        configure(node, "lasting", "share.auto.offset.reset", "earliest")
        produce(node, "lasting", range(400), partitions=4)

        def verdict(message: Message) -> AcknowledgeType:
            return RELEASE if deliveries(message) == 1 and message.offset() == 50 else ACCEPT

        with sharer(node, "lasting", verdict=verdict) as first:
            wait_until(lambda: first.acked[True] == 404)
            node.kill9()
            node.start()
            produce(node, "lasting", range(400, 800), partitions=4)
            wait_until(lambda: len(set(first.numbers)) == 800)
            again = Counter(first.numbers)
            assert {number for number, count in again.items() if count > 1} == {200, 201, 202, 203}
            wait_until(lambda: first.acked[True] == 804)
            assert not first.acked[False]
        node.restart()
        with sharer(node, "lasting") as late:
            produce(node, "lasting", range(800, 804), partitions=4)
            wait_until(lambda: sorted(late.numbers) == [800, 801, 802, 803])


def test_our_own_tools_see_and_move_such_a_group(
    node: LocalNode,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MAINSTEM_BOOTSTRAP", node.kafka)

    def ask(*words: str) -> Any:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main((*words, "-o", "json"))
        assert not ended.value.code
        return json.loads(capsys.readouterr().out)

    with sharer(node, topic) as only:
        wait_until(lambda: only.acked[True] == 100)
        [listed] = [each for each in ask("group", "list") if each["group"] == topic]
        assert (listed["state"], listed["type"], listed["protocol_type"]) == (
            "Stable",
            "share",
            "share",
        )
        shown = ask("group", "describe", topic)
        assert (shown["protocol_type"], shown["protocol"]) == ("share", "simple")
        assert [member["partitions"] for member in shown["members"]] == [[f"{topic}-0"]]
    [lag] = ask("group", "lag", topic)
    assert (lag["committed"], lag["end"], lag["lag"]) == (100, 100, 0)
    ask("group", "alter", topic, "-c", "share.delivery.count.limit=9")
    held = {each["setting"]: each["value"] for each in ask("group", "settings", topic)}
    assert held["share.delivery.count.limit"] == "9"
    assert held["share.auto.offset.reset"] == "earliest"
    ask("group", "alter", topic, "--remove", "share.delivery.count.limit")
    [moved] = ask("group", "reset-offsets", topic, "--to-offset", "90")
    assert (moved["old"], moved["new"]) == (100, 90)
    [lag] = ask("group", "lag", topic)
    assert (lag["committed"], lag["lag"]) == (90, 10)
    with sharer(node, topic) as late:
        wait_until(lambda: late.numbers == list(range(90, 100)))
    assert ask("group", "delete", topic) == {"deleted": [topic]}
    assert topic not in {each["group"] for each in ask("group", "list")}
