"""Topics and settings as administrators ask for them."""

import asyncio
from collections.abc import Awaitable

import pytest
from msgspec.structs import replace
from tests.kit.topics import ListJournal, topics_admin

from mainstem.broker.api.configs import ConfigChange, ConfigValue
from mainstem.broker.api.topics import Topics
from mainstem.broker.services.topics_service import TopicsAdmin
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Topic


@pytest.fixture
async def admin() -> TopicsAdmin:
    return await topics_admin()


async def create(admin: Topics, name: str = "t", **changes: object) -> Topic:
    fields = {"partitions": 1, "replication_factor": 1, "configs": {}} | changes
    return await admin.create(name, **fields)  # type: ignore[arg-type]


async def code_of(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(MainstemError) as refused:
        await work
    return refused.value.code


def by_name(configs: object) -> dict[str, ConfigValue]:
    return {config.name: config for config in configs}  # type: ignore[attr-defined]


async def test_minus_one_means_the_nodes_default() -> None:
    admin = await topics_admin({"num.partitions": "7"})
    topic = await create(admin, partitions=-1, replication_factor=-1)
    assert len(topic.streams) == 7
    assert topic.streams[0].last.replicas == (1,)


@pytest.mark.parametrize("verb", ["delete", "grow", "alter", "replace"])
async def test_a_node_that_is_behind_catches_up_before_it_says_that_a_topic_is_unknown(
    admin: TopicsAdmin, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def catch_up(_timeout_s: float) -> None:
        if admin.by_name("late") is None:
            await create(admin, "late")

    monkeypatch.setattr(admin._placement, "confirm", catch_up)
    if verb == "delete":
        await admin.delete("late")
    elif verb == "grow":
        await admin.add_partitions("late", total=3)
    elif verb == "alter":
        change = ConfigChange("retention.ms", "set", "5")
        await admin.configs.alter_topic("late", [change])
    else:
        await admin.configs.replace_topic("late", {"retention.ms": "5"})
    assert (admin.by_name("late") is None) == (verb == "delete")


async def test_validation_alone_creates_nothing(admin: TopicsAdmin) -> None:
    topic = await create(admin, partitions=3, validate_only=True)
    assert len(topic.streams) == 3
    assert admin.by_name("t") is None
    assert await code_of(create(admin, "a/b", validate_only=True)) is (ErrorCode.INVALID_TOPIC_NAME)


async def test_a_deleted_and_recreated_topic_has_another_id(admin: TopicsAdmin) -> None:
    first = await create(admin)
    await admin.delete("t")
    assert admin.by_name("t") is None
    assert admin.by_id(first.id) is None
    second = await create(admin)
    assert first.id != second.id
    assert admin.by_id(second.id) == second


async def test_a_missing_topic_comes_into_being_when_that_is_switched_on() -> None:
    admin = await topics_admin({"num.partitions": "2"})
    topic = await admin.ensure("events")
    assert len(topic.streams) == 2
    assert await admin.ensure("events") == topic
    assert await code_of(admin.ensure("a b")) is ErrorCode.INVALID_TOPIC_NAME


async def test_a_missing_topic_stays_missing_when_that_is_switched_off() -> None:
    admin = await topics_admin({"auto.create.topics.enable": "false"})
    assert await code_of(admin.ensure("events")) is ErrorCode.UNKNOWN_TOPIC
    assert await code_of(admin.ensure("a b")) is ErrorCode.INVALID_TOPIC_NAME


async def test_many_that_ask_for_the_same_missing_topic_get_one(admin: TopicsAdmin) -> None:
    topics = await asyncio.gather(*(admin.ensure("events") for _ in range(20)))
    assert len({topic.id for topic in topics}) == 1


async def test_internal_topics_are_the_houses_own(admin: TopicsAdmin) -> None:
    name = "__consumer_offsets"
    assert await code_of(create(admin, name)) is ErrorCode.INVALID_REQUEST
    await asyncio.gather(admin.ensure_offsets_topic(), admin.ensure_offsets_topic())
    topic = admin.by_name(name)
    assert topic is not None
    assert topic.internal
    assert admin.partition_count(name) == 50
    assert admin.configs.settings_of(topic).compact
    assert await code_of(admin.delete(name)) is ErrorCode.INVALID_REQUEST
    assert await code_of(admin.add_partitions(name, total=60)) is ErrorCode.INVALID_REQUEST


async def test_the_topic_of_transactions_is_made_by_the_house() -> None:
    admin = await topics_admin({"transaction.state.log.num.partitions": "5"})
    await asyncio.gather(*(admin.ensure_transactions_topic() for _ in range(3)))
    topic = admin.by_name("__transaction_state")
    assert topic is not None
    assert (topic.internal, len(topic.streams)) == (True, 5)
    assert admin.configs.settings_of(topic).compact
    assert await admin.ensure("__transaction_state") == topic


async def test_an_internal_topic_nobody_keeps_is_not_created_on_demand(admin: TopicsAdmin) -> None:
    assert await code_of(admin.ensure("__transaction_state")) is ErrorCode.UNKNOWN_TOPIC
    assert (await admin.ensure("__consumer_offsets")).internal


async def test_deletion_can_be_switched_off() -> None:
    admin = await topics_admin({"delete.topic.enable": "false"})
    await create(admin)
    assert await code_of(admin.delete("t")) is ErrorCode.POLICY_VIOLATION
    assert await code_of(admin.delete("u")) is ErrorCode.UNKNOWN_TOPIC


async def test_partitions_are_added_or_only_checked(admin: TopicsAdmin) -> None:
    await create(admin, partitions=2)
    await admin.add_partitions("t", total=4, validate_only=True)
    assert admin.partition_count("t") == 2
    await admin.add_partitions("t", total=4, assignments=[[1], [1]])
    assert admin.partition_count("t") == 4
    wrong = admin.add_partitions("t", total=6, assignments=[[1]])
    assert await code_of(wrong) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await code_of(admin.add_partitions("t", total=4)) is ErrorCode.INVALID_PARTITIONS
    assert await code_of(admin.add_partitions("u", total=4)) is ErrorCode.UNKNOWN_TOPIC


async def test_growth_that_was_overtaken_looks_again(admin: TopicsAdmin) -> None:
    await create(admin, partitions=1)
    await asyncio.gather(admin.add_partitions("t", total=3), admin.add_partitions("t", total=5))
    assert admin.partition_count("t") == 5
    outcomes = await asyncio.gather(
        admin.add_partitions("t", total=8),
        admin.add_partitions("t", total=6),
        return_exceptions=True,
    )
    assert outcomes[0] is None
    assert isinstance(outcomes[1], MainstemError)
    assert outcomes[1].code is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("assignments", [{0: [1], 2: [1]}, {1: [1]}, {0: [9]}])
async def test_an_assignment_needs_partitions_from_zero_and_known_nodes(
    admin: TopicsAdmin, assignments: dict[int, list[int]]
) -> None:
    work = create(admin, partitions=-1, replication_factor=-1, assignments=assignments)
    assert await code_of(work) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


# Settings


async def test_a_setting_tells_where_it_comes_from() -> None:
    admin = await topics_admin({"log.roll.jitter.hours": "2"})
    await create(admin, configs={"retention.ms": "5"})
    await admin.configs.alter_node(None, [ConfigChange("log.segment.bytes", "set", "5000000")])
    await admin.configs.alter_node(NodeId(1), [ConfigChange("log.roll.ms", "set", "77")])
    shown = by_name(admin.configs.describe_topic("t"))
    found = {name: (shown[name].value, shown[name].source) for name in shown}
    assert found["retention.ms"] == ("5", "topic")
    assert found["segment.bytes"] == ("5000000", "dynamic_default")
    assert found["segment.ms"] == ("77", "dynamic")
    assert found["segment.jitter.ms"] == ("7200000", "static"), "hours in milliseconds"
    assert found["cleanup.policy"] == ("delete", "default")
    assert shown["retention.ms"].synonyms == (("retention.ms", "5", "topic"),)
    assert shown["cleanup.policy"].synonyms == (("log.cleanup.policy", "delete", "default"),)


async def test_parsed_settings_follow_every_change() -> None:
    admin = await topics_admin({"log.retention.ms": "1000"})
    topic = await create(admin)
    assert admin.configs.settings_of(topic).retention_ms == 1_000
    await admin.configs.alter_node(None, [ConfigChange("log.retention.ms", "set", "2000")])
    assert admin.configs.settings_of(topic).retention_ms == 2_000
    await admin.configs.alter_topic("t", [ConfigChange("retention.ms", "set", "3000")])
    changed = admin.by_name("t")
    assert changed is not None
    assert admin.configs.settings_of(changed).retention_ms == 3_000
    await admin.configs.alter_topic("t", [ConfigChange("retention.ms", "delete")])
    changed = admin.by_name("t")
    assert changed is not None
    assert admin.configs.settings_of(changed).retention_ms == 2_000


async def test_lists_are_appended_to_and_subtracted_from(admin: TopicsAdmin) -> None:
    await create(admin)

    async def policy(operation: str, value: str) -> str | None:
        await admin.configs.alter_topic("t", [ConfigChange("cleanup.policy", operation, value)])
        return by_name(admin.configs.describe_topic("t"))["cleanup.policy"].value

    assert await policy("append", "compact") == "delete,compact", "to the default"
    assert await policy("append", "compact") == "delete,compact"
    assert await policy("subtract", "delete") == "compact"
    on_number = admin.configs.alter_topic("t", [ConfigChange("retention.ms", "append", "1")])
    assert await code_of(on_number) is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([ConfigChange("retention.ms", "set", "x")], ErrorCode.INVALID_CONFIG),
        ([ConfigChange("retention.mz", "set", "1")], ErrorCode.INVALID_CONFIG),
        ([ConfigChange("retention.ms", "set", None)], ErrorCode.INVALID_REQUEST),
        ([ConfigChange("retention.ms", "set", "1")] * 2, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_change_that_cannot_be_made_changes_nothing(
    admin: TopicsAdmin, changes: list[ConfigChange], code: ErrorCode
) -> None:
    await create(admin, configs={"segment.ms": "5"})
    for validate_only in (True, False):
        work = admin.configs.alter_topic("t", changes, validate_only=validate_only)
        assert await code_of(work) is code
    topic = admin.by_name("t")
    assert topic is not None
    assert topic.configs == {"segment.ms": "5"}


async def test_replacing_forgets_what_is_not_named(admin: TopicsAdmin) -> None:
    await create(admin, configs={"segment.ms": "5", "retention.ms": "6"})
    await admin.configs.replace_topic("t", {"retention.ms": "7"})
    topic = admin.by_name("t")
    assert topic is not None
    assert topic.configs == {"retention.ms": "7"}
    null = admin.configs.replace_topic("t", {"retention.ms": None})
    assert await code_of(null) is ErrorCode.INVALID_CONFIG


async def test_changes_that_come_together_all_hold(admin: TopicsAdmin) -> None:
    await create(admin)
    names = ["retention.ms", "segment.ms", "flush.ms", "retention.bytes", "delete.retention.ms"]
    await asyncio.gather(
        *(admin.configs.alter_topic("t", [ConfigChange(name, "set", "9")]) for name in names)
    )
    topic = admin.by_name("t")
    assert topic is not None
    assert topic.configs == dict.fromkeys(names, "9")


async def test_a_change_to_what_already_holds_is_not_recorded() -> None:
    journal = ListJournal()
    admin = await topics_admin(journal=journal)
    await create(admin, configs={"retention.ms": "5"})
    count = len(journal.appends)
    await admin.configs.alter_topic("t", [ConfigChange("retention.ms", "set", "5")])
    assert len(journal.appends) == count


async def test_a_node_shows_its_settings_and_takes_only_those_that_may_change() -> None:
    admin = await topics_admin({"num.partitions": "4"})
    shown = by_name(admin.configs.describe_node(NodeId(1)))
    assert (shown["num.partitions"].value, shown["num.partitions"].source) == ("4", "static")
    assert shown["num.partitions"].read_only
    assert not shown["log.retention.ms"].read_only
    assert "max.connections" not in shown, "this node was not started with it"
    fixed = admin.configs.alter_node(NodeId(1), [ConfigChange("num.partitions", "set", "5")])
    assert await code_of(fixed) is ErrorCode.INVALID_REQUEST
    other = admin.configs.alter_node(NodeId(2), [])
    assert await code_of(other) is ErrorCode.INVALID_REQUEST
    assert by_name(admin.configs.describe_node(None)) == {}
    await admin.configs.replace_node(None, {"log.retention.ms": "5"})
    assert by_name(admin.configs.describe_node(None))["log.retention.ms"].value == "5"


async def test_the_node_is_shown_at_the_address_it_has_now(admin: TopicsAdmin) -> None:
    admin.node = replace(admin.node, port=40_000)
    [node] = admin.nodes()
    assert node.port == 40_000
