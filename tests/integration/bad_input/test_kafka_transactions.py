"""Attacks on transactions: nobody ends, joins or spoils a transaction that is not theirs.

Each attack is made while a victim's transaction is open; whatever is answered, the victim goes on
and commits, and what readers see is what the victim wrote.
"""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest
from tests.integration.bad_input.transaction_wire import (
    ADD_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    INIT,
    LIST_TRANSACTIONS,
    MARKERS,
    NEW,
    NOBODY,
    OLD,
    Who,
    Wire,
    batch,
    fresh_topic,
)
from tests.integration.bad_input.wire import PeakRss, Raw, batch_of

from mainstem.model.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK
from mainstem.streams.producers.transaction_markers import TransactionMarker, marker_batch
from mainstem.testing.local_node import LocalNode
from mainstem.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from mainstem.wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from mainstem.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from mainstem.wire.kafka.messages.list_transactions import ListTransactionsRequest
from mainstem.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

MIB = 1 << 20
UNKNOWN_TOPIC, METADATA_TOO_LARGE, BAD_TOPIC = 3, 12, 17
ILLEGAL_GENERATION, UNKNOWN_MEMBER = 22, 25
INVALID_REQUEST, OUT_OF_ORDER, OLD_EPOCH, WRONG_STATE, WRONG_PRODUCER = 42, 45, 47, 48, 49
BAD_TIMEOUT, NOT_AUTHORIZED, NOT_ATTEMPTED, BAD_RECORD, FENCED = 50, 53, 55, 87, 90
ABORTABLE = 120
FOREIGN = {OLD_EPOCH, WRONG_PRODUCER, FENCED, INVALID_REQUEST}

pytestmark = pytest.mark.usefixtures("witness")


def fresh(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


@dataclass
class Victim:
    """A producer with an open transaction of one record, b"mine-0"."""

    wire: Wire
    who: Who
    topic: str
    sequence: int = 1

    def send(self, value: bytes) -> None:
        """The next record is taken as if nothing had happened."""
        error, _ = self.wire.produce(self.topic, batch(self.who, self.sequence, value))
        assert error == 0
        self.sequence += 1

    def is_unharmed(self) -> None:
        """The transaction is open, and nothing of it is visible; it goes on and commits."""
        name = self.wire.name
        assert name is not None
        assert self.wire.state(name) == "Ongoing"
        assert self.wire.values(self.topic) == []
        self.send(b"mine-1")
        error, _ = self.wire.end(self.who)
        assert error == 0
        self.sees([b"mine-0", b"mine-1"])

    def sees(self, values: list[bytes]) -> None:
        """What is committed is exactly this, at the latest a moment from now."""
        deadline = time.monotonic() + 10
        while self.wire.values(self.topic) != values and time.monotonic() < deadline:
            time.sleep(0.02)
        assert self.wire.values(self.topic) == values


@pytest.fixture(params=[OLD, NEW], ids=["version 1", "version 2"])
def versions(request: pytest.FixtureRequest) -> dict[int, int]:
    asked: dict[int, int] = request.param
    return asked


@pytest.fixture
def victim(node: LocalNode, versions: dict[int, int]) -> Iterator[Victim]:
    with Wire(node.kafka, fresh("victim"), versions) as wire:
        yield begun(wire)


def begun(wire: Wire) -> Victim:
    """A producer that has begun."""
    topic = fresh_topic(wire)
    error, who = wire.init()
    assert error == 0
    if wire.versions is OLD:
        assert wire.add(who, (topic, 0)) == [0]
    assert wire.produce(topic, batch(who, 0, b"mine-0"))[0] == 0
    return Victim(wire, who, topic)


@pytest.fixture
def attacker(node: LocalNode, victim: Victim) -> Iterator[Wire]:
    """Another connection that uses the victim's transactional id."""
    with Wire(node.kafka, victim.wire.name, victim.wire.versions) as wire:
        yield wire


LIES = {
    "a newer epoch": lambda who: Who(who.producer_id, who.epoch + 1),
    "the largest epoch": lambda who: Who(who.producer_id, 2**15 - 1),
    "no epoch": lambda who: Who(who.producer_id, -1),
    "the smallest epoch": lambda who: Who(who.producer_id, -(2**15)),
    "another producer": lambda who: Who(who.producer_id + 1_000, who.epoch),
    "no producer": lambda who: Who(-1, -1),
    "the largest producer": lambda who: Who(2**63 - 1, who.epoch),
    "the smallest producer": lambda who: Who(-(2**63), who.epoch),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_foreign_identity_gets_nowhere_with_a_transactional_id(
    victim: Victim, attacker: Wire, lie: str
) -> None:
    who = LIES[lie](victim.who)
    group = fresh("group")

    assert attacker.add(who, (victim.topic, 1)) != [0]
    assert attacker.add_group(who, group) in FOREIGN
    assert attacker.commit_offset(who, group, victim.topic, 1) in FOREIGN
    for commit in (True, False):
        assert attacker.end(who, commit=commit)[0] in FOREIGN
    for partition in (0, 1):
        assert attacker.produce(victim.topic, batch(who, 0, b"theirs"), partition)[0] != 0

    assert victim.wire.position(group, victim.topic) == (0, -1)
    victim.is_unharmed()


@pytest.mark.parametrize("lie", sorted(set(LIES) - {"no producer", "no epoch"}))
def test_an_identity_cannot_be_taken_over_by_guessing_it(
    victim: Victim, attacker: Wire, lie: str
) -> None:
    who = LIES[lie](victim.who)
    error, given = attacker.init(expected=who)
    assert error in FOREIGN
    assert given == NOBODY
    victim.is_unharmed()


def test_a_transactional_id_of_ones_own_does_not_open_a_foreign_transaction(
    node: LocalNode, victim: Victim
) -> None:
    """The batch names the victim's producer, the request a transactional id of the attacker's."""
    with Wire(node.kafka, fresh("attacker"), victim.wire.versions) as wire:
        assert wire.init()[0] == 0
        for data in (batch(victim.who, 0, b"theirs"), batch(victim.who, 7, b"theirs")):
            assert wire.produce(victim.topic, data, partition=1)[0] != 0
    victim.is_unharmed()


def test_a_transactional_batch_needs_a_transactional_id(node: LocalNode, victim: Victim) -> None:
    with Wire(node.kafka, None, victim.wire.versions) as wire:
        for sequence, partition in product((0, 1, 5), (0, 1)):
            data = batch(victim.who, sequence, b"theirs")
            error, offset = wire.produce(victim.topic, data, partition)
            assert error in {NOT_AUTHORIZED, WRONG_STATE}
            assert offset == -1
        nobody = batch(NOBODY, -1, b"theirs")
        assert wire.produce(victim.topic, nobody)[0] in {NOT_AUTHORIZED, WRONG_STATE, BAD_RECORD}
    victim.is_unharmed()


def test_a_plain_batch_of_a_producer_with_an_open_transaction_is_refused(
    node: LocalNode, victim: Victim
) -> None:
    data = batch(victim.who, victim.sequence, b"plain", flags=0)
    assert victim.wire.produce(victim.topic, data)[0] != 0
    with Wire(node.kafka, None, victim.wire.versions) as wire:
        assert wire.produce(victim.topic, data)[0] != 0
    victim.is_unharmed()


@pytest.mark.parametrize("flags", [CONTROL_MASK, CONTROL_MASK | TRANSACTIONAL_MASK])
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_made_by_a_client_is_refused(victim: Victim, *, commit: bool, flags: int) -> None:
    for epoch in (victim.who.epoch, victim.who.epoch + 1):
        forged = marker_batch(
            victim.who.producer_id, epoch, TransactionMarker(commit, 0), 1_700_000_000_000
        )
        assert victim.wire.produce(victim.topic, bytes(forged))[0] in {BAD_RECORD, OLD_EPOCH}
    control = batch(victim.who, victim.sequence, b"control", flags=flags)
    assert victim.wire.produce(victim.topic, control)[0] == BAD_RECORD
    victim.is_unharmed()


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("epoch", [0, 1, 2**15 - 1, -1])
@pytest.mark.parametrize("coordinator_epoch", [-1, 0, 2**31 - 1, -(2**31)])
def test_markers_that_a_client_asks_for_do_not_end_a_transaction_in_good_hands(
    victim: Victim, *, commit: bool, epoch: int, coordinator_epoch: int
) -> None:
    topics = [
        WritableTxnMarkerTopic(name=victim.topic, partition_indexes=[0, 1, 7, -1]),
        WritableTxnMarkerTopic(name="absent", partition_indexes=[0]),
    ]
    for producer_id in (victim.who.producer_id, 2**63 - 1, -1):
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=topics,
            coordinator_epoch=coordinator_epoch,
        )
        answer = victim.wire.raw.call(MARKERS, 1, WriteTxnMarkersRequest(markers=[marker]))
        codes = [part.error_code for topic in answer.markers[0].topics for part in topic.partitions]
        assert all(codes), codes
    victim.is_unharmed()


def test_a_fenced_producer_writes_nothing_and_ends_nothing(victim: Victim, attacker: Wire) -> None:
    """The one who was there before is the attacker now: its connection is still open."""
    error, fresh_identity = attacker.init()
    assert error == 0
    assert fresh_identity > victim.who

    assert victim.wire.produce(victim.topic, batch(victim.who, 1, b"late"))[0] == OLD_EPOCH
    late = batch(victim.who, 0, b"late")
    assert victim.wire.produce(victim.topic, late, partition=1)[0] in {OLD_EPOCH, FENCED}
    assert set(victim.wire.add(victim.who, (victim.topic, 1))) <= {FENCED, OLD_EPOCH}
    assert victim.wire.add_group(victim.who, fresh("group")) in {FENCED, OLD_EPOCH}
    for commit in (True, False):
        assert victim.wire.end(victim.who, commit=commit)[0] in {FENCED, OLD_EPOCH}
    victim.sees([])


@pytest.mark.parametrize("sequence", [2, 3, 1_000, 2**31 - 1])
def test_a_gap_in_the_sequence_is_refused(victim: Victim, sequence: int) -> None:
    data = batch(victim.who, sequence, b"gap")
    assert victim.wire.produce(victim.topic, data) == (OUT_OF_ORDER, -1)
    victim.is_unharmed()


@pytest.mark.parametrize("sequence", [-1, -2, -(2**31)])
def test_a_sequence_below_zero_is_refused(victim: Victim, sequence: int) -> None:
    data = batch(victim.who, sequence, b"below")
    assert victim.wire.produce(victim.topic, data)[0] in {OUT_OF_ORDER, BAD_RECORD}
    victim.is_unharmed()


def test_a_repeated_sequence_with_other_content_changes_nothing(victim: Victim) -> None:
    first = victim.wire.produce(victim.topic, batch(victim.who, 0, b"mine-0"))
    other = victim.wire.produce(victim.topic, batch(victim.who, 0, b"theirs"))
    assert first == other
    assert first[0] == 0
    # More records under the same first sequence are no repetition.
    assert victim.wire.produce(victim.topic, batch(victim.who, 0, b"a", b"b"))[0] == OUT_OF_ORDER
    victim.is_unharmed()


def test_a_new_epoch_begins_its_sequence_anew(victim: Victim, attacker: Wire) -> None:
    error, who = attacker.init()
    assert error == 0
    if attacker.versions is OLD:
        assert attacker.add(who, (victim.topic, 0)) == [0]
    for sequence in (1, 5, 2**31 - 1):
        assert attacker.produce(victim.topic, batch(who, sequence, b"x"))[0] == OUT_OF_ORDER
    assert attacker.produce(victim.topic, batch(who, 0, b"anew"))[0] == 0
    assert attacker.end(who)[0] == 0
    victim.sees([b"anew"])


def test_a_repeated_end_is_answered_as_before_and_the_opposite_one_refused(
    victim: Victim,
) -> None:
    first = victim.wire.end(victim.who)
    assert first[0] == 0
    for _ in range(3):
        assert victim.wire.end(victim.who) == first
        assert victim.wire.end(victim.who, commit=False)[0] == WRONG_STATE
    victim.sees([b"mine-0"])


def test_an_end_that_comes_late_does_not_end_the_next_transaction(node: LocalNode) -> None:
    """The reason for an epoch per transaction; clients of the first version lack it."""
    with Wire(node.kafka, fresh("victim"), NEW) as wire:
        victim = begun(wire)
        error, following = wire.end(victim.who)
        assert error == 0
        assert following > victim.who
        assert wire.produce(victim.topic, batch(following, 0, b"next"))[0] == 0

        for commit in (True, False):
            assert wire.end(victim.who, commit=commit)[0] in {FENCED, OLD_EPOCH}
        late = batch(victim.who, 1, b"late")
        assert wire.produce(victim.topic, late)[0] == OLD_EPOCH

        assert wire.state(wire.name or "") == "Ongoing"
        victim.sees([b"mine-0"])
        assert wire.end(following)[0] == 0
        victim.sees([b"mine-0", b"next"])


def test_ending_what_never_began_leaves_no_trace(node: LocalNode, versions: dict[int, int]) -> None:
    with Wire(node.kafka, fresh("idle"), versions) as wire:
        error, who = wire.init()
        assert error == 0
        assert wire.end(who)[0] == WRONG_STATE
    with Wire(node.kafka, fresh("unknown"), versions) as wire:
        for commit in (True, False):
            assert wire.end(Who(0, 0), commit=commit)[0] == WRONG_PRODUCER
        assert wire.add(Who(0, 0), ("absent", 0)) != [0]
        assert wire.add_group(Who(0, 0), "group") == WRONG_PRODUCER
        assert wire.state(wire.name or "") == ""


@pytest.mark.parametrize("partition", [2, -1, 2**31 - 1, -(2**31)])
def test_partitions_that_are_not_there_are_refused_with_all_the_others(
    node: LocalNode, partition: int
) -> None:
    with Wire(node.kafka, fresh("adder"), OLD) as wire:
        topic = fresh_topic(wire)
        error, who = wire.init()
        assert error == 0
        assert wire.add(who, (topic, 0), (topic, partition)) == [NOT_ATTEMPTED, UNKNOWN_TOPIC]
        assert wire.add(who, ("absent", 0), (topic, 1)) == [UNKNOWN_TOPIC, NOT_ATTEMPTED]
        assert wire.state(wire.name or "") == "Empty"
        assert wire.produce(topic, batch(who, 0, b"x"))[0] in {WRONG_STATE, ABORTABLE}


def test_writing_to_a_partition_that_was_not_added_is_refused(node: LocalNode) -> None:
    with Wire(node.kafka, fresh("adder"), OLD) as wire:
        topic = fresh_topic(wire)
        _, who = wire.init()
        assert wire.add(who, (topic, 0)) == [0]
        assert wire.produce(topic, batch(who, 0, b"x"), partition=1)[0] in {WRONG_STATE, ABORTABLE}
        assert wire.end(who)[0] == 0


def test_internal_topics_take_nothing_from_transactions(victim: Victim) -> None:
    assert victim.wire.add_group(victim.who, fresh("group")) == 0
    for topic in ("__transaction_state", "__consumer_offsets"):
        data = batch(victim.who, 0, b"forged")
        assert victim.wire.produce(topic, data)[0] == BAD_TOPIC
        assert victim.wire.raw.produce(topic, bytes(batch_of(b"forged")))[0] == BAD_TOPIC
    victim.is_unharmed()


def test_internal_topics_are_not_added_to_a_transaction(node: LocalNode) -> None:
    with Wire(node.kafka, fresh("adder"), OLD) as wire:
        victim = begun(wire)
        assert wire.add_group(victim.who, fresh("group")) == 0
        for internal in ("__transaction_state", "__consumer_offsets"):
            codes = wire.add(victim.who, (internal, 0), (victim.topic, 1))
            assert codes == [BAD_TOPIC, NOT_ATTEMPTED]
        victim.is_unharmed()


def test_positions_need_a_group_in_the_transaction(node: LocalNode) -> None:
    with Wire(node.kafka, fresh("chain"), OLD) as wire:
        victim = begun(wire)
        group = fresh("group")
        assert wire.commit_offset(victim.who, group, victim.topic, 1) in {WRONG_STATE, ABORTABLE}
        assert wire.position(group, victim.topic) == (0, -1)
        victim.is_unharmed()


def test_positions_of_members_that_do_not_exist_are_refused(victim: Victim) -> None:
    group = fresh("group")
    if victim.wire.versions is OLD:
        assert victim.wire.add_group(victim.who, group) == 0
    for generation, member in ((5, ""), (0, "ghost"), (2**31 - 1, "ghost")):
        error = victim.wire.commit_offset(
            victim.who, group, victim.topic, 1, generation_id=generation, member_id=member
        )
        assert error in {ILLEGAL_GENERATION, UNKNOWN_MEMBER}, (generation, member)
    assert victim.wire.commit_offset(victim.who, group, "absent", 1) == UNKNOWN_TOPIC
    assert (
        victim.wire.commit_offset(victim.who, group, victim.topic, 1, metadata="x" * 5_000)
        == METADATA_TOO_LARGE
    )
    victim.is_unharmed()
    assert victim.wire.position(group, victim.topic)[1] == -1


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), 2**31 - 1, 15 * 60_000 + 1])
def test_a_time_out_out_of_bounds_is_refused(node: LocalNode, timeout_ms: int) -> None:
    with Wire(node.kafka, fresh("slow"), OLD) as wire:
        assert wire.init(timeout_ms=timeout_ms) == (BAD_TIMEOUT, NOBODY)
        assert wire.state(wire.name or "") == ""


@pytest.mark.parametrize("name", ["", "x" * 5_000, "x" * 32_767])
def test_a_transactional_id_that_no_one_can_have_is_refused(node: LocalNode, name: str) -> None:
    with Wire(node.kafka, name, OLD) as wire:
        assert wire.init() == (INVALID_REQUEST, NOBODY)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a\x00b", "a\nb", "\u202e", "~", "%2e%2e"])
def test_a_strange_transactional_id_is_a_name_like_any_other(node: LocalNode, name: str) -> None:
    with Wire(node.kafka, f"{name}{fresh('')}", NEW) as wire:
        begun(wire).is_unharmed()


def test_half_an_identity_is_refused(node: LocalNode) -> None:
    with Wire(node.kafka, fresh("half"), OLD) as wire:
        for expected in (Who(5, -1), Who(-1, 5)):
            assert wire.init(expected)[0] == INVALID_REQUEST


def test_calls_among_nodes_are_not_served(node: LocalNode, victim: Victim) -> None:
    topics = [AddPartitionsToTxnTopic(name=victim.topic, partitions=[1])]
    entry = AddPartitionsToTxnTransaction(
        transactional_id=victim.wire.name or "",
        producer_id=victim.who.producer_id,
        producer_epoch=victim.who.epoch,
        topics=topics,
    )
    for version in (4, 5):
        with Raw(node.kafka) as raw:
            try:
                raw.call(ADD_PARTITIONS, version, AddPartitionsToTxnRequest(transactions=[entry]))
            except AssertionError:
                continue  # closed, or an answer that fits no client
            pytest.fail("a call among nodes was answered")
    victim.is_unharmed()


def test_a_fetch_that_claims_to_be_a_replica_sees_no_more_than_others(victim: Victim) -> None:
    found = victim.wire.fetch(victim.topic, replica_id=1)
    assert found.error_code != 0
    victim.is_unharmed()


def lists(victim: Victim) -> dict[str, tuple[int, int, object]]:
    """Requests with more in them than anyone needs: (api, version, request)."""

    def adding(topics: list[AddPartitionsToTxnTopic]) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=victim.wire.name or "",
            v3_and_below_producer_id=victim.who.producer_id,
            v3_and_below_producer_epoch=victim.who.epoch,
            v3_and_below_topics=topics,
        )

    absent = [AddPartitionsToTxnTopic(name=f"absent-{n}", partitions=[0]) for n in range(100_000)]
    again = [AddPartitionsToTxnTopic(name=victim.topic, partitions=[0] * 100_000)]
    marker = WritableTxnMarker(
        producer_id=victim.who.producer_id,
        topics=[WritableTxnMarkerTopic(name=victim.topic, partition_indexes=[0] * 100_000)],
    )
    return {
        "topics that are not there": (ADD_PARTITIONS, 3, adding(absent)),
        "one partition over and over": (ADD_PARTITIONS, 3, adding(again)),
        "markers": (MARKERS, 1, WriteTxnMarkersRequest(markers=[marker])),
        "transactional ids": (
            DESCRIBE_TRANSACTIONS,
            0,
            DescribeTransactionsRequest(transactional_ids=[f"id-{n}" for n in range(100_000)]),
        ),
        "states": (
            LIST_TRANSACTIONS,
            2,
            ListTransactionsRequest(state_filters=[f"state-{n}" for n in range(100_000)]),
        ),
        "a pattern that takes for ever": (
            LIST_TRANSACTIONS,
            2,
            ListTransactionsRequest(transactional_id_pattern="(a+)+" * 200 + "$"),
        ),
        "a pattern that repeats itself": (
            LIST_TRANSACTIONS,
            2,
            ListTransactionsRequest(transactional_id_pattern="((((a{99}){99}){99}){99}){99}"),
        ),
    }


LISTS = (
    "topics that are not there",
    "one partition over and over",
    "markers",
    "transactional ids",
    "states",
    "a pattern that takes for ever",
    "a pattern that repeats itself",
)


@pytest.mark.parametrize("what", LISTS)
def test_long_lists_are_answered_quickly_and_within_bounds(node: LocalNode, what: str) -> None:
    with Wire(node.kafka, fresh("victim"), OLD) as wire:
        victim = begun(wire)
        api_key, version, request = lists(victim)[what]
        started = time.monotonic()
        with PeakRss(node) as memory:
            wire.raw.call(api_key, version, request)
        assert time.monotonic() - started < 15
        assert memory.growth < 200 * MIB
        victim.is_unharmed()


def test_ids_that_are_only_asked_for_once_take_little(node: LocalNode) -> None:
    with PeakRss(node) as memory, Raw(node.kafka, timeout_s=30) as raw:
        for number in range(1_000):
            request = InitProducerIdRequest(
                transactional_id=f"once-{number}-" + "x" * 1_000, transaction_timeout_ms=1_000
            )
            assert raw.call(INIT, 4, request).error_code == 0
    assert memory.growth < 20 * MIB
