"""The transaction APIs in every version they are advertised in, from bytes to bytes."""

from collections.abc import Callable, Coroutine
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.coordination.transaction_house import House, T, play

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.features import FEATURES
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.protocols.kafka.call import Call, Peer, Served
from mainstem.protocols.kafka.handlers import (
    coordinators,
    producers,
    transaction_admin,
    transactions,
    versions,
)
from mainstem.protocols.kafka.handlers.transaction_errors import produce_refusal
from mainstem.streams.state import DescribedProducer
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from mainstem.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from mainstem.wire.kafka.messages.api_versions import ApiVersionsRequest
from mainstem.wire.kafka.messages.describe_producers import DescribeProducersRequest, TopicRequest
from mainstem.wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from mainstem.wire.kafka.messages.end_txn import EndTxnRequest
from mainstem.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from mainstem.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from mainstem.wire.kafka.messages.list_transactions import ListTransactionsRequest
from mainstem.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from mainstem.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

SERVED: dict[int, Served] = (
    producers.SERVED | transactions.SERVED | transaction_admin.SERVED | coordinators.SERVED
)
FIND, INIT, ADD, ADD_OFFSETS, END, MARK, COMMIT = 10, 22, 24, 25, 26, 27, 28
PRODUCERS, DESCRIBE, LIST = 61, 65, 66
UNKNOWN_TOPIC, OLD_EPOCH, FENCED, BAD_STATE, NOT_ATTEMPTED = 3, 47, 90, 48, 55
INVALID_REQUEST, ABORTABLE, BAD_PATTERN, UNKNOWN_ID = 42, 120, 128, 105


def joined(chunks: list[Any]) -> bytes:
    return b"".join(chunks)


class Door:
    """A partition that two producers have written to; the first has a transaction open there."""

    @property
    def state(self) -> "Door":
        return self

    def described(self) -> list[DescribedProducer]:
        return [DescribedProducer(7, 1, 3, 99, 2, 40), DescribedProducer(8, 0, -1, 98, -1, -1)]

    def has_transaction(self, producer_id: int, epoch: int) -> bool:
        return (producer_id, epoch) == (7, 1)


class Desk:
    """A broker with a topic ``data`` of two partitions, asked in bytes."""

    def __init__(self, house: House) -> None:
        async def new_producer_id() -> tuple[int, int]:
            return 5, 0

        self.broker: Any = SimpleNamespace(
            transactions=house.transactions,
            groups=house.groups,
            producers=SimpleNamespace(new_producer_id=new_producer_id),
            topics=SimpleNamespace(
                by_name=lambda name: (
                    SimpleNamespace(streams=[0, 1], internal=False) if name == "data" else None
                ),
                nodes=lambda: [Node(NodeId(1), "127.0.0.1", 9092)],
            ),
            streams=SimpleNamespace(door=self._door),
            node=Node(NodeId(1), "127.0.0.1", 9092),
        )
        self.peer = Peer("127.0.0.1", 5, "127.0.0.1", 9092)

    def _door(self, topic: str, partition: int) -> Door:
        if topic != "data":
            raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC, subject=f"{topic}-{partition}")
        return Door()

    async def ask(self, api_key: int, version: int, request: Any) -> Any:
        served = SERVED[api_key]
        assert served.min_version <= version <= served.max_version
        sent = joined(codec.encode_request(api_key, version, request))
        heard = codec.decode_request(api_key, version, sent, 0, len(sent))
        answer = served.handler(Call(api_key, version, "c", self.peer, self.broker), heard)
        if isawaitable(answer):
            answer = await answer
        back = joined(codec.encode_response(api_key, version, answer))
        return codec.decode_response(api_key, version, back, 0, len(back))

    async def init(self, version: int = 5, **changes: Any) -> Any:
        given: dict[str, Any] = {"transactional_id": T, "transaction_timeout_ms": 60_000}
        return await self.ask(INIT, version, InitProducerIdRequest(**(given | changes)))

    async def add(
        self, producer: Any, *partitions: int, version: int = 3, topic: str = "data"
    ) -> Any:
        asked = AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=T,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[asked],
        )
        [found] = (await self.ask(ADD, version, request)).results_by_topic_v3_and_below
        return [answer.partition_error_code for answer in found.results_by_partition]

    async def end(self, producer: Any, version: int = 5, *, commit: bool = True) -> Any:
        request = EndTxnRequest(T, producer.producer_id, producer.producer_epoch, commit)
        return await self.ask(END, version, request)

    async def commit(self, producer: Any, version: int, topic: str = "data") -> int:
        asked = TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(0, 5)])
        request = TxnOffsetCommitRequest(
            transactional_id=T,
            group_id="g",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=[asked],
        )
        answer = await self.ask(COMMIT, version, request)
        return int(answer.topics[0].partitions[0].error_code)


def converse(story: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    async def run(house: House) -> None:
        await story(Desk(house))

    play(run)


def served_versions(api_key: int) -> range:
    return range(SERVED[api_key].min_version, SERVED[api_key].max_version + 1)


@pytest.mark.parametrize("version", served_versions(INIT))
def test_a_producer_without_a_transactional_id_gets_a_fresh_one(version: int) -> None:
    async def story(desk: Desk) -> None:
        answer = await desk.init(version, transactional_id=None)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 5, 0)

    converse(story)


@pytest.mark.parametrize("version", served_versions(INIT))
def test_a_transactional_producer_comes_back_under_the_next_epoch(version: int) -> None:
    async def story(desk: Desk) -> None:
        first = await desk.init(version)
        second = await desk.init(version)
        assert (first.error_code, first.producer_epoch) == (0, 0)
        assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)

    converse(story)


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_a_fenced_producer_is_told_so_in_words_that_it_knows(version: int) -> None:
    async def story(desk: Desk) -> None:
        first = await desk.init()
        await desk.init()
        answer = await desk.init(
            version, producer_id=first.producer_id, producer_epoch=first.producer_epoch
        )
        assert answer.error_code == (FENCED if version >= 4 else OLD_EPOCH)
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)

    converse(story)


def test_half_an_identity_and_an_empty_id_are_refused() -> None:
    async def story(desk: Desk) -> None:
        for changes in ({"producer_id": 3}, {"producer_epoch": 3}, {"transactional_id": ""}):
            assert (await desk.init(**changes)).error_code == INVALID_REQUEST

    converse(story)


@pytest.mark.parametrize("add", served_versions(ADD))
@pytest.mark.parametrize("end", served_versions(END))
def test_a_transaction_is_added_to_and_ended(add: int, end: int) -> None:
    async def story(desk: Desk) -> None:
        producer = await desk.init()
        assert await desk.add(producer, 0, 1, version=add) == [0, 0]
        answer = await desk.end(producer, end)
        assert answer.error_code == 0
        expected = (producer.producer_id, producer.producer_epoch + 1) if end >= 5 else (-1, -1)
        assert (answer.producer_id, answer.producer_epoch) == expected

    converse(story)


def test_one_unknown_partition_keeps_all_out() -> None:
    async def story(desk: Desk) -> None:
        producer = await desk.init()
        assert await desk.add(producer, 0, 7) == [NOT_ATTEMPTED, UNKNOWN_TOPIC]
        assert await desk.add(producer, 0, topic="other") == [UNKNOWN_TOPIC]
        assert (await desk.end(producer, 4)).error_code == BAD_STATE

    converse(story)


@pytest.mark.parametrize("version", served_versions(ADD))
def test_a_zombie_adds_nothing(version: int) -> None:
    async def story(desk: Desk) -> None:
        zombie = await desk.init()
        await desk.init()
        code = FENCED if version >= 2 else OLD_EPOCH
        assert await desk.add(zombie, 0, version=version) == [code]
        assert (await desk.end(zombie, version)).error_code == code

    converse(story)


@pytest.mark.parametrize("version", served_versions(ADD_OFFSETS))
def test_positions_of_a_group_are_added_and_committed_by_older_clients(version: int) -> None:
    async def story(desk: Desk) -> None:
        producer = await desk.init()
        request = AddOffsetsToTxnRequest(T, producer.producer_id, producer.producer_epoch, "g")
        assert (await desk.ask(ADD_OFFSETS, version, request)).error_code == 0
        assert await desk.commit(producer, version) == 0

    converse(story)


@pytest.mark.parametrize("version", served_versions(COMMIT))
def test_only_newer_clients_commit_positions_without_adding_the_group(version: int) -> None:
    async def story(desk: Desk) -> None:
        producer = await desk.init()
        expected = {4: ABORTABLE, 5: 0}.get(version, BAD_STATE)
        assert await desk.commit(producer, version) == expected
        assert await desk.commit(producer, version, topic="other") == UNKNOWN_TOPIC

    converse(story)


def test_a_description_and_a_list_name_the_transaction() -> None:
    async def story(desk: Desk) -> None:
        producer = await desk.init()
        await desk.add(producer, 0, 1)
        answer = await desk.ask(DESCRIBE, 0, DescribeTransactionsRequest([T, "unknown"]))
        found, unknown = answer.transaction_states
        assert (found.transaction_state, found.producer_id) == ("Ongoing", producer.producer_id)
        assert [(t.topic, t.partitions) for t in found.topics] == [("data", [0, 1])]
        assert unknown.error_code == UNKNOWN_ID

    converse(story)


@pytest.mark.parametrize("version", served_versions(LIST))
def test_lists_can_be_filtered(version: int) -> None:
    async def story(desk: Desk) -> None:
        producer = await desk.init()

        async def names(**wanted: Any) -> list[str]:
            answer = await desk.ask(LIST, version, ListTransactionsRequest(**wanted))
            return [line.transactional_id for line in answer.transaction_states]

        assert await names() == await names(state_filters=["Empty"]) == [T]
        assert await names(producer_id_filters=[producer.producer_id + 1]) == []
        answer = await desk.ask(LIST, version, ListTransactionsRequest(["Empty", "Napping"]))
        assert answer.unknown_state_filters == ["Napping"]
        if version >= 2:
            assert await names(transactional_id_pattern="t+") == [T]
            bad = ListTransactionsRequest(transactional_id_pattern="(")
            assert (await desk.ask(LIST, version, bad)).error_code == BAD_PATTERN

    converse(story)


def test_producers_of_a_partition_are_described() -> None:
    async def story(desk: Desk) -> None:
        request = DescribeProducersRequest([TopicRequest("data", [0]), TopicRequest("other", [0])])
        answer = await desk.ask(PRODUCERS, 0, request)
        [known], [unknown] = (topic.partitions for topic in answer.topics)
        assert [(p.producer_id, p.current_txn_start_offset) for p in known.active_producers] == [
            (7, 40),
            (8, -1),
        ]
        assert unknown.error_code == UNKNOWN_TOPIC

    converse(story)


@pytest.mark.parametrize(
    ("producer", "commit", "code"),
    [((7, 1), False, 0), ((7, 1), True, INVALID_REQUEST), ((8, 0), False, BAD_STATE)],
)
def test_only_an_open_transaction_is_aborted_and_none_committed(
    producer: tuple[int, int], code: int, *, commit: bool
) -> None:
    async def story(desk: Desk) -> None:
        marker = WritableTxnMarker(*producer, commit, [WritableTxnMarkerTopic("data", [0])], 4)
        answer = await desk.ask(MARK, 1, WriteTxnMarkersRequest([marker]))
        [result] = answer.markers
        assert result.topics[0].partitions[0].error_code == code

    converse(story)


@pytest.mark.parametrize("version", served_versions(FIND)[1:])
def test_this_node_coordinates_every_transaction(version: int) -> None:
    async def story(desk: Desk) -> None:
        request = FindCoordinatorRequest(key=T, key_type=1, coordinator_keys=[T])
        answer = await desk.ask(FIND, version, request)
        one = answer if version < 4 else answer.coordinators[0]
        assert (one.error_code, one.node_id, one.port) == (0, 1, 9092)

    converse(story)


@pytest.mark.parametrize("version", [3, 4])
def test_transaction_version_two_is_in_force(version: int) -> None:
    handler: Any = versions.api_versions(SERVED)
    levels_now = SimpleNamespace(level=lambda name: FEATURES[name].default, features_epoch=int)
    call: Any = SimpleNamespace(
        version=version,
        peer=SimpleNamespace(software=""),
        broker=SimpleNamespace(cluster=levels_now),
    )

    answer = handler(call, ApiVersionsRequest("client", "1"))

    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    assert levels["transaction.version"] == 2
    offered = {each.name for each in answer.supported_features}
    assert ("transaction.version" in offered) is (version >= 4)


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (None, 12, None),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.COORDINATOR_LOADING, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.FENCED_PRODUCER, 12, ErrorCode.FENCED_PRODUCER),
    ],
)
def test_a_producer_is_told_what_its_version_knows(
    code: ErrorCode | None, version: int, told: ErrorCode | None
) -> None:
    assert produce_refusal(code, version) is told
