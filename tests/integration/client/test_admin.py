"""Administration against running brokers: every call changes state, and is read back."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.kit.waiting import eventually

from mainstem.client.admin import Admin, NewTopic
from mainstem.client.consuming.offset_query import EARLIEST, LATEST, MAX_TIMESTAMP
from mainstem.client.producer import Producer
from mainstem.client.values import TopicPartition
from mainstem.model.errors import ErrorCode, MainstemError

NAMES = (f"own-admin-{number}" for number in itertools.count())


@pytest.fixture
async def admin(broker: str) -> AsyncIterator[Admin]:
    async with Admin(broker, timeout_ms=20_000) as admin:
        yield admin


async def test_topics_are_created_described_grown_and_deleted(admin: Admin) -> None:
    name, other = next(NAMES), next(NAMES)
    await admin.create_topics([NewTopic(name=name, partitions=2), NewTopic(name=other)])

    async def is_listed() -> bool:
        return {name, other} <= (await admin.list_topics()).keys()

    await eventually(is_listed)
    info = (await admin.describe_topics([name]))[name]
    assert sorted(info.partitions) == [0, 1]
    assert info.id != bytes(16)
    await admin.create_partitions(name, 5)

    async def has_grown() -> bool:
        return len((await admin.describe_topics([name]))[name].partitions) == 5

    await eventually(has_grown)
    await admin.delete_topics([name, other])

    async def is_gone() -> bool:
        return name not in await admin.list_topics()

    await eventually(is_gone)


async def test_validation_creates_nothing(admin: Admin) -> None:
    name = next(NAMES)
    await admin.create_topics([NewTopic(name=name, partitions=1)], validate_only=True)
    assert name not in await admin.list_topics()


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("twice", ErrorCode.TOPIC_EXISTS),
        ("bad name", ErrorCode.INVALID_TOPIC_NAME),
        ("no partitions", ErrorCode.INVALID_PARTITIONS),
        ("bad config", ErrorCode.INVALID_CONFIG),
        ("delete nothing", ErrorCode.UNKNOWN_TOPIC),
        ("describe nothing", ErrorCode.UNKNOWN_TOPIC),
        ("shrink", ErrorCode.INVALID_PARTITIONS),
    ],
)
async def test_what_cannot_be_done_is_refused_with_its_reason(
    admin: Admin, what: str, code: ErrorCode
) -> None:
    name, absent = next(NAMES), next(NAMES)
    await admin.create_topic(name, partitions=2)
    attempts: dict[str, Callable[[], Awaitable[object]]] = {
        "twice": lambda: admin.create_topic(name),
        "bad name": lambda: admin.create_topic("bad name!"),
        "no partitions": lambda: admin.create_topic(absent, partitions=0),
        "bad config": lambda: admin.create_topic(absent, configs={"retention.ms": "soon"}),
        "delete nothing": lambda: admin.delete_topics([absent]),
        "describe nothing": lambda: admin.describe_topics([absent]),
        "shrink": lambda: admin.create_partitions(name, 1),
    }
    with pytest.raises(MainstemError) as caught:
        await attempts[what]()
    assert caught.value.code is code
    assert caught.value.cause


async def test_settings_are_changed_and_taken_back(admin: Admin) -> None:
    name = next(NAMES)
    await admin.create_topic(name, configs={"retention.ms": "86400000"})

    async def own() -> dict[str, str | None]:
        return {c.name: c.value for c in await admin.topic_configs(name) if c.source == "topic"}

    async def is_known() -> bool:
        # Apache Kafka may answer that it does not know a topic which it has just created.
        return name in await admin.list_topics()

    await eventually(is_known)
    assert await own() == {"retention.ms": "86400000"}
    await admin.alter_topic_configs(
        name, changed={"max.message.bytes": "5000"}, removed=["retention.ms"]
    )

    async def has_changed() -> bool:
        return await own() == {"max.message.bytes": "5000"}

    await eventually(has_changed)
    with pytest.raises(MainstemError) as caught:
        await admin.alter_topic_configs(name, changed={"max.message.bytes": "many"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


async def test_records_are_deleted_and_offsets_asked_for(admin: Admin) -> None:
    name = next(NAMES)
    await admin.create_topic(name, partitions=1)
    partition = TopicPartition(name, 0)
    async with Producer(admin._cluster) as producer:
        for number in range(100):
            await producer.send(name, b"x", timestamp_ms=5_000 - abs(number - 60))

    async def offset(when: int) -> int:
        return (await admin.offsets({partition: when}))[partition].offset

    assert [await offset(EARLIEST), await offset(LATEST)] == [0, 100]
    assert await offset(MAX_TIMESTAMP) == 60
    assert await offset(4_950) == 10
    assert await offset(9_000) == -1
    assert await admin.delete_records({partition: 30}) == {partition: 30}
    assert await offset(EARLIEST) == 30
    assert await admin.delete_records({partition: -1}) == {partition: 100}


@pytest.mark.lone("a cluster of one node is described")
async def test_the_cluster_and_its_directories_are_described(admin: Admin, broker: str) -> None:
    name = next(NAMES)
    await admin.create_topic(name, partitions=2)
    async with Producer(admin._cluster) as producer:
        await producer.send_and_wait(name, b"x" * 1000, partition=1)
    cluster = await admin.describe_cluster()
    [node] = cluster.nodes
    assert cluster.id
    assert f"{node.host}:{node.port}" == broker
    assert any(entry.name == "log.dirs" for entry in await admin.node_configs(node.id))
    [directory] = await admin.log_dirs()
    sizes = {p.partition: p.size_bytes for p in directory.partitions if p.topic == name}
    assert sizes[1] >= 1000


async def test_groups_are_listed_reset_and_deleted(admin: Admin) -> None:
    name = next(NAMES)
    await admin.create_topic(name, partitions=2)
    offsets = {TopicPartition(name, 0): 5, TopicPartition(name, 1): 0}
    await admin.groups.reset(name, offsets)
    found = await admin.groups.offsets(name)
    assert {partition: committed.offset for partition, committed in found.items()} == offsets
    assert name in [group.id for group in await admin.groups.list_all()]
    await admin.groups.delete_offsets(name, [TopicPartition(name, 0)])
    assert list(await admin.groups.offsets(name)) == [TopicPartition(name, 1)]
    await admin.groups.delete([name])
    assert name not in [group.id for group in await admin.groups.list_all()]
