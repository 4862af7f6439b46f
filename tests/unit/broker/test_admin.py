"""Topics and settings as administrators ask for them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import pytest
from msgspec.structs import replace
from tests.unit.broker.kit import ListJournal, topics_admin

from mainstem.broker.admin import TopicsAdmin
from mainstem.broker.topics_api import ConfigChange, ConfigValue, Topics
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Topic

T = TypeVar("T")
Story = Callable[[TopicsAdmin], Awaitable[T]]


def tell(story: Story[T], static: Mapping[str, str] | None = None) -> T:
    async def run() -> T:
        return await story(await topics_admin(static))

    return asyncio.run(run())


async def create(admin: Topics, name: str = "t", **changes: object) -> Topic:
    fields = {"partitions": 1, "replication_factor": 1, "configs": {}} | changes
    return await admin.create(name, **fields)  # type: ignore[arg-type]


async def code_of(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(MainstemError) as refused:
        await work
    return refused.value.code


def by_name(configs: object) -> dict[str, ConfigValue]:
    return {config.name: config for config in configs}  # type: ignore[attr-defined]


def test_minus_one_means_the_nodes_default() -> None:
    async def story(admin: TopicsAdmin) -> None:
        topic = await create(admin, partitions=-1, replication_factor=-1)
        assert len(topic.streams) == 7
        assert topic.streams[0].last.replicas == (1,)

    tell(story, {"num.partitions": "7"})


@pytest.mark.parametrize("verb", ["delete", "grow", "alter", "replace"])
def test_a_node_that_is_behind_catches_up_before_it_says_that_a_topic_is_unknown(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(admin: TopicsAdmin) -> None:
        async def catch_up(_timeout_s: float) -> None:
            if admin.by_name("late") is None:
                await create(admin, "late")

        monkeypatch.setattr(admin._placement, "confirm", catch_up)
        if verb == "delete":
            await admin.delete("late")
            assert admin.by_name("late") is None
            return
        if verb == "grow":
            await admin.add_partitions("late", total=3)
        elif verb == "alter":
            change = ConfigChange("retention.ms", "set", "5")
            await admin.alter_topic_configs("late", [change])
        else:
            await admin.replace_topic_configs("late", {"retention.ms": "5"})
        assert admin.by_name("late") is not None

    tell(story)


def test_validation_alone_creates_nothing() -> None:
    async def story(admin: TopicsAdmin) -> None:
        topic = await create(admin, partitions=3, validate_only=True)
        assert len(topic.streams) == 3
        assert admin.by_name("t") is None
        assert await code_of(create(admin, "a/b", validate_only=True)) is (
            ErrorCode.INVALID_TOPIC_NAME
        )

    tell(story)


def test_a_deleted_and_recreated_topic_has_another_id() -> None:
    async def story(admin: TopicsAdmin) -> None:
        first = await create(admin)
        await admin.delete("t")
        assert admin.by_name("t") is None
        assert admin.by_id(first.id) is None
        second = await create(admin)
        assert first.id != second.id
        assert admin.by_id(second.id) == second

    tell(story)


def test_a_missing_topic_comes_into_being_when_that_is_switched_on() -> None:
    async def story(admin: TopicsAdmin) -> None:
        topic = await admin.ensure("events")
        assert len(topic.streams) == 2
        assert await admin.ensure("events") == topic
        assert await code_of(admin.ensure("a b")) is ErrorCode.INVALID_TOPIC_NAME

    tell(story, {"num.partitions": "2"})


def test_a_missing_topic_stays_missing_when_that_is_switched_off() -> None:
    async def story(admin: TopicsAdmin) -> None:
        assert await code_of(admin.ensure("events")) is ErrorCode.UNKNOWN_TOPIC
        assert await code_of(admin.ensure("a b")) is ErrorCode.INVALID_TOPIC_NAME

    tell(story, {"auto.create.topics.enable": "false"})


def test_many_that_ask_for_the_same_missing_topic_get_one() -> None:
    async def story(admin: TopicsAdmin) -> None:
        topics = await asyncio.gather(*(admin.ensure("events") for _ in range(20)))
        assert len({topic.id for topic in topics}) == 1

    tell(story)


def test_internal_topics_are_the_houses_own() -> None:
    async def story(admin: TopicsAdmin) -> None:
        name = "__consumer_offsets"
        assert await code_of(create(admin, name)) is ErrorCode.INVALID_REQUEST
        await asyncio.gather(admin.ensure_offsets_topic(), admin.ensure_offsets_topic())
        topic = admin.by_name(name)
        assert topic is not None
        assert topic.internal
        assert admin.partition_count(name) == 50
        assert admin.settings_of(topic).compact
        assert await code_of(admin.delete(name)) is ErrorCode.INVALID_REQUEST
        assert await code_of(admin.add_partitions(name, total=60)) is ErrorCode.INVALID_REQUEST

    tell(story)


def test_the_topic_of_transactions_is_made_by_the_house() -> None:
    async def story(admin: TopicsAdmin) -> None:
        await asyncio.gather(*(admin.ensure_transactions_topic() for _ in range(3)))
        topic = admin.by_name("__transaction_state")
        assert topic is not None
        assert (topic.internal, len(topic.streams)) == (True, 5)
        assert admin.settings_of(topic).compact
        assert await admin.ensure("__transaction_state") == topic

    tell(story, {"transaction.state.log.num.partitions": "5"})


def test_an_internal_topic_nobody_keeps_is_not_created_on_demand() -> None:
    async def story(admin: TopicsAdmin) -> None:
        assert await code_of(admin.ensure("__transaction_state")) is ErrorCode.UNKNOWN_TOPIC
        assert (await admin.ensure("__consumer_offsets")).internal

    tell(story)


def test_deletion_can_be_switched_off() -> None:
    async def story(admin: TopicsAdmin) -> None:
        await create(admin)
        assert await code_of(admin.delete("t")) is ErrorCode.POLICY_VIOLATION
        assert await code_of(admin.delete("u")) is ErrorCode.UNKNOWN_TOPIC

    tell(story, {"delete.topic.enable": "false"})


def test_partitions_are_added_or_only_checked() -> None:
    async def story(admin: TopicsAdmin) -> None:
        await create(admin, partitions=2)
        await admin.add_partitions("t", total=4, validate_only=True)
        assert admin.partition_count("t") == 2
        await admin.add_partitions("t", total=4, assignments=[[1], [1]])
        assert admin.partition_count("t") == 4
        wrong = admin.add_partitions("t", total=6, assignments=[[1]])
        assert await code_of(wrong) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await code_of(admin.add_partitions("t", total=4)) is ErrorCode.INVALID_PARTITIONS
        assert await code_of(admin.add_partitions("u", total=4)) is ErrorCode.UNKNOWN_TOPIC

    tell(story)


def test_growth_that_was_overtaken_looks_again() -> None:
    async def story(admin: TopicsAdmin) -> None:
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

    tell(story)


@pytest.mark.parametrize("assignments", [{0: [1], 2: [1]}, {1: [1]}, {0: [9]}])
def test_an_assignment_needs_partitions_from_zero_and_known_nodes(
    assignments: dict[int, list[int]],
) -> None:
    async def story(admin: TopicsAdmin) -> None:
        work = create(admin, partitions=-1, replication_factor=-1, assignments=assignments)
        assert await code_of(work) is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    tell(story)


# Settings


def test_a_setting_tells_where_it_comes_from() -> None:
    async def story(admin: TopicsAdmin) -> None:
        await create(admin, configs={"retention.ms": "5"})
        await admin.alter_node_configs(None, [ConfigChange("log.segment.bytes", "set", "5000000")])
        await admin.alter_node_configs(NodeId(1), [ConfigChange("log.roll.ms", "set", "77")])
        shown = by_name(admin.topic_configs("t"))
        found = {name: (shown[name].value, shown[name].source) for name in shown}
        assert found["retention.ms"] == ("5", "topic")
        assert found["segment.bytes"] == ("5000000", "dynamic_default")
        assert found["segment.ms"] == ("77", "dynamic")
        assert found["segment.jitter.ms"] == ("7200000", "static"), "hours in milliseconds"
        assert found["cleanup.policy"] == ("delete", "default")
        assert shown["retention.ms"].synonyms == (("retention.ms", "5", "topic"),)
        assert shown["cleanup.policy"].synonyms == (("log.cleanup.policy", "delete", "default"),)

    tell(story, {"log.roll.jitter.hours": "2"})


def test_parsed_settings_follow_every_change() -> None:
    async def story(admin: TopicsAdmin) -> None:
        topic = await create(admin)
        assert admin.settings_of(topic).retention_ms == 1_000
        await admin.alter_node_configs(None, [ConfigChange("log.retention.ms", "set", "2000")])
        assert admin.settings_of(topic).retention_ms == 2_000
        await admin.alter_topic_configs("t", [ConfigChange("retention.ms", "set", "3000")])
        changed = admin.by_name("t")
        assert changed is not None
        assert admin.settings_of(changed).retention_ms == 3_000
        await admin.alter_topic_configs("t", [ConfigChange("retention.ms", "delete")])
        changed = admin.by_name("t")
        assert changed is not None
        assert admin.settings_of(changed).retention_ms == 2_000

    tell(story, {"log.retention.ms": "1000"})


def test_lists_are_appended_to_and_subtracted_from() -> None:
    async def story(admin: TopicsAdmin) -> None:
        await create(admin)

        async def policy(operation: str, value: str) -> str | None:
            await admin.alter_topic_configs("t", [ConfigChange("cleanup.policy", operation, value)])
            return by_name(admin.topic_configs("t"))["cleanup.policy"].value

        assert await policy("append", "compact") == "delete,compact", "to the default"
        assert await policy("append", "compact") == "delete,compact"
        assert await policy("subtract", "delete") == "compact"
        on_number = admin.alter_topic_configs("t", [ConfigChange("retention.ms", "append", "1")])
        assert await code_of(on_number) is ErrorCode.INVALID_CONFIG

    tell(story)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([ConfigChange("retention.ms", "set", "x")], ErrorCode.INVALID_CONFIG),
        ([ConfigChange("retention.mz", "set", "1")], ErrorCode.INVALID_CONFIG),
        ([ConfigChange("retention.ms", "set", None)], ErrorCode.INVALID_REQUEST),
        ([ConfigChange("retention.ms", "set", "1")] * 2, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_that_cannot_be_made_changes_nothing(
    changes: list[ConfigChange], code: ErrorCode
) -> None:
    async def story(admin: TopicsAdmin) -> None:
        await create(admin, configs={"segment.ms": "5"})
        for validate_only in (True, False):
            work = admin.alter_topic_configs("t", changes, validate_only=validate_only)
            assert await code_of(work) is code
        topic = admin.by_name("t")
        assert topic is not None
        assert topic.configs == {"segment.ms": "5"}

    tell(story)


def test_replacing_forgets_what_is_not_named() -> None:
    async def story(admin: TopicsAdmin) -> None:
        await create(admin, configs={"segment.ms": "5", "retention.ms": "6"})
        await admin.replace_topic_configs("t", {"retention.ms": "7"})
        topic = admin.by_name("t")
        assert topic is not None
        assert topic.configs == {"retention.ms": "7"}
        null = admin.replace_topic_configs("t", {"retention.ms": None})
        assert await code_of(null) is ErrorCode.INVALID_CONFIG

    tell(story)


def test_changes_that_come_together_all_hold() -> None:
    async def story(admin: TopicsAdmin) -> None:
        await create(admin)
        names = ["retention.ms", "segment.ms", "flush.ms", "retention.bytes", "delete.retention.ms"]
        await asyncio.gather(
            *(admin.alter_topic_configs("t", [ConfigChange(name, "set", "9")]) for name in names)
        )
        topic = admin.by_name("t")
        assert topic is not None
        assert topic.configs == dict.fromkeys(names, "9")

    tell(story)


def test_a_change_to_what_already_holds_is_not_recorded() -> None:
    async def run() -> None:
        journal = ListJournal()
        admin = await topics_admin(journal=journal)
        await create(admin, configs={"retention.ms": "5"})
        count = len(journal.appends)
        await admin.alter_topic_configs("t", [ConfigChange("retention.ms", "set", "5")])
        assert len(journal.appends) == count

    asyncio.run(run())


def test_a_node_shows_its_settings_and_takes_only_those_that_may_change() -> None:
    async def story(admin: TopicsAdmin) -> None:
        shown = by_name(admin.node_configs(NodeId(1)))
        assert (shown["num.partitions"].value, shown["num.partitions"].source) == ("4", "static")
        assert shown["num.partitions"].read_only
        assert not shown["log.retention.ms"].read_only
        assert "max.connections" not in shown, "this node was not started with it"
        fixed = admin.alter_node_configs(NodeId(1), [ConfigChange("num.partitions", "set", "5")])
        assert await code_of(fixed) is ErrorCode.INVALID_REQUEST
        other = admin.alter_node_configs(NodeId(2), [])
        assert await code_of(other) is ErrorCode.INVALID_REQUEST
        assert by_name(admin.node_configs(None)) == {}
        await admin.replace_node_configs(None, {"log.retention.ms": "5"})
        assert by_name(admin.node_configs(None))["log.retention.ms"].value == "5"

    tell(story, {"num.partitions": "4"})


def test_the_node_is_shown_at_the_address_it_has_now() -> None:
    async def story(admin: TopicsAdmin) -> None:
        admin.node = replace(admin.node, port=40_000)
        [node] = admin.nodes()
        assert node.port == 40_000

    tell(story)
