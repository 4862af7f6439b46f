"""The transaction APIs in every version they are advertised in, from bytes to bytes."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kit.kafka import HandlerClient
from tests.kit.loop import virtual_time
from tests.kit.transactions import T, TransactionNode, started_node

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.features import FEATURES
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.protocols.kafka.call import ApiHandler
from mainstem.protocols.kafka.handlers import versions
from mainstem.protocols.kafka.handlers.coordination import (
    coordinators,
    producers,
    transaction_admin,
    transactions,
)
from mainstem.protocols.kafka.handlers.coordination.transaction_errors import produce_refusal
from mainstem.streams.producers.stream_state import DescribedProducer
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

pytestmark = virtual_time

SERVED: dict[int, ApiHandler] = (
    producers.SERVED | transactions.SERVED | transaction_admin.SERVED | coordinators.SERVED
)
FIND, INIT, ADD, ADD_OFFSETS, END, MARK, COMMIT = 10, 22, 24, 25, 26, 27, 28
PRODUCERS, DESCRIBE, LIST = 61, 65, 66
UNKNOWN_TOPIC, OLD_EPOCH, FENCED, BAD_STATE, NOT_ATTEMPTED = 3, 47, 90, 48, 55
INVALID_REQUEST, ABORTABLE, BAD_PATTERN, UNKNOWN_ID = 42, 120, 128, 105


def joined(chunks: list[Any]) -> bytes:
    return b"".join(chunks)


class MemoryPartition:
    """A partition that two producers have written to; the first has a transaction open there."""

    @property
    def state(self) -> "MemoryPartition":
        return self

    def described(self) -> list[DescribedProducer]:
        return [DescribedProducer(7, 1, 3, 99, 2, 40), DescribedProducer(8, 0, -1, 98, -1, -1)]

    def has_transaction(self, producer_id: int, epoch: int) -> bool:
        return (producer_id, epoch) == (7, 1)


class TransactionsClient(HandlerClient):
    """A broker with a topic ``data`` of two partitions, asked in bytes."""

    def __init__(self, node: TransactionNode) -> None:
        async def new_producer_id() -> tuple[int, int]:
            return 5, 0

        broker = SimpleNamespace(
            transactions=node.transactions,
            groups=node.groups,
            producers=SimpleNamespace(new_producer_id=new_producer_id),
            topics=SimpleNamespace(
                by_name=lambda name: (
                    SimpleNamespace(streams=[0, 1], internal=False) if name == "data" else None
                ),
                nodes=lambda: [Node(NodeId(1), "127.0.0.1", 9092)],
            ),
            streams=SimpleNamespace(partition=self._partition),
            node=Node(NodeId(1), "127.0.0.1", 9092),
        )
        super().__init__(SERVED, broker)

    def _partition(self, topic: str, partition: int) -> MemoryPartition:
        if topic != "data":
            raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC, subject=f"{topic}-{partition}")
        return MemoryPartition()

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


@pytest.fixture
async def client() -> AsyncIterator[TransactionsClient]:
    async with started_node() as node:
        yield TransactionsClient(node)


def served_versions(api_key: int) -> range:
    return range(SERVED[api_key].min_version, SERVED[api_key].max_version + 1)


@pytest.mark.parametrize("version", served_versions(INIT))
async def test_a_producer_without_a_transactional_id_gets_a_fresh_one(
    client: TransactionsClient, version: int
) -> None:
    answer = await client.init(version, transactional_id=None)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 5, 0)


@pytest.mark.parametrize("version", served_versions(INIT))
async def test_a_transactional_producer_comes_back_under_the_next_epoch(
    client: TransactionsClient, version: int
) -> None:
    first = await client.init(version)
    second = await client.init(version)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)


@pytest.mark.parametrize("version", [3, 4, 5, 6])
async def test_a_fenced_producer_is_told_so_in_words_that_it_knows(
    client: TransactionsClient, version: int
) -> None:
    first = await client.init()
    await client.init()
    answer = await client.init(
        version, producer_id=first.producer_id, producer_epoch=first.producer_epoch
    )
    assert answer.error_code == (FENCED if version >= 4 else OLD_EPOCH)
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


async def test_half_an_identity_and_an_empty_id_are_refused(client: TransactionsClient) -> None:
    for changes in ({"producer_id": 3}, {"producer_epoch": 3}, {"transactional_id": ""}):
        assert (await client.init(**changes)).error_code == INVALID_REQUEST


@pytest.mark.parametrize("add", served_versions(ADD))
@pytest.mark.parametrize("end", served_versions(END))
async def test_a_transaction_is_added_to_and_ended(
    client: TransactionsClient, add: int, end: int
) -> None:
    producer = await client.init()
    assert await client.add(producer, 0, 1, version=add) == [0, 0]
    answer = await client.end(producer, end)
    assert answer.error_code == 0
    expected = (producer.producer_id, producer.producer_epoch + 1) if end >= 5 else (-1, -1)
    assert (answer.producer_id, answer.producer_epoch) == expected


async def test_one_unknown_partition_keeps_all_out(client: TransactionsClient) -> None:
    producer = await client.init()
    assert await client.add(producer, 0, 7) == [NOT_ATTEMPTED, UNKNOWN_TOPIC]
    assert await client.add(producer, 0, topic="other") == [UNKNOWN_TOPIC]
    assert (await client.end(producer, 4)).error_code == BAD_STATE


@pytest.mark.parametrize("version", served_versions(ADD))
async def test_a_zombie_adds_nothing(client: TransactionsClient, version: int) -> None:
    zombie = await client.init()
    await client.init()
    code = FENCED if version >= 2 else OLD_EPOCH
    assert await client.add(zombie, 0, version=version) == [code]
    assert (await client.end(zombie, version)).error_code == code


@pytest.mark.parametrize("version", served_versions(ADD_OFFSETS))
async def test_positions_of_a_group_are_added_and_committed_by_older_clients(
    client: TransactionsClient, version: int
) -> None:
    producer = await client.init()
    request = AddOffsetsToTxnRequest(T, producer.producer_id, producer.producer_epoch, "g")
    assert (await client.ask(ADD_OFFSETS, version, request)).error_code == 0
    assert await client.commit(producer, version) == 0


@pytest.mark.parametrize("version", served_versions(COMMIT))
async def test_only_newer_clients_commit_positions_without_adding_the_group(
    client: TransactionsClient, version: int
) -> None:
    producer = await client.init()
    expected = {4: ABORTABLE, 5: 0}.get(version, BAD_STATE)
    assert await client.commit(producer, version) == expected
    assert await client.commit(producer, version, topic="other") == UNKNOWN_TOPIC


async def test_a_description_and_a_list_name_the_transaction(client: TransactionsClient) -> None:
    producer = await client.init()
    await client.add(producer, 0, 1)
    answer = await client.ask(DESCRIBE, 0, DescribeTransactionsRequest([T, "unknown"]))
    found, unknown = answer.transaction_states
    assert (found.transaction_state, found.producer_id) == ("Ongoing", producer.producer_id)
    assert [(t.topic, t.partitions) for t in found.topics] == [("data", [0, 1])]
    assert unknown.error_code == UNKNOWN_ID


@pytest.mark.parametrize("version", served_versions(LIST))
async def test_lists_can_be_filtered(client: TransactionsClient, version: int) -> None:
    producer = await client.init()

    async def names(**wanted: Any) -> list[str]:
        answer = await client.ask(LIST, version, ListTransactionsRequest(**wanted))
        return [line.transactional_id for line in answer.transaction_states]

    assert await names() == await names(state_filters=["Empty"]) == [T]
    assert await names(producer_id_filters=[producer.producer_id + 1]) == []
    answer = await client.ask(LIST, version, ListTransactionsRequest(["Empty", "Napping"]))
    assert answer.unknown_state_filters == ["Napping"]
    if version >= 2:
        assert await names(transactional_id_pattern="t+") == [T]
        bad = ListTransactionsRequest(transactional_id_pattern="(")
        assert (await client.ask(LIST, version, bad)).error_code == BAD_PATTERN


async def test_producers_of_a_partition_are_described(client: TransactionsClient) -> None:
    request = DescribeProducersRequest([TopicRequest("data", [0]), TopicRequest("other", [0])])
    answer = await client.ask(PRODUCERS, 0, request)
    [known], [unknown] = (topic.partitions for topic in answer.topics)
    assert [(p.producer_id, p.current_txn_start_offset) for p in known.active_producers] == [
        (7, 40),
        (8, -1),
    ]
    assert unknown.error_code == UNKNOWN_TOPIC


@pytest.mark.parametrize(
    ("producer", "commit", "code"),
    [((7, 1), False, 0), ((7, 1), True, INVALID_REQUEST), ((8, 0), False, BAD_STATE)],
)
async def test_only_an_open_transaction_is_aborted_and_none_committed(
    client: TransactionsClient, producer: tuple[int, int], code: int, *, commit: bool
) -> None:
    marker = WritableTxnMarker(*producer, commit, [WritableTxnMarkerTopic("data", [0])], 4)
    answer = await client.ask(MARK, 1, WriteTxnMarkersRequest([marker]))
    [result] = answer.markers
    assert result.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize("version", served_versions(FIND)[1:])
async def test_this_node_coordinates_every_transaction(
    client: TransactionsClient, version: int
) -> None:
    request = FindCoordinatorRequest(key=T, key_type=1, coordinator_keys=[T])
    answer = await client.ask(FIND, version, request)
    one = answer if version < 4 else answer.coordinators[0]
    assert (one.error_code, one.node_id, one.port) == (0, 1, 9092)


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
