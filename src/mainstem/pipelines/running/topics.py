"""Ensures that the topics of a pipeline exist before it runs."""

import asyncio
import json
from collections.abc import Iterable, Mapping

from msgspec import Struct

from mainstem.client.admin import Admin, NewTopic
from mainstem.client.values import TopicInfo
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.pipelines.file import rules
from mainstem.pipelines.file.model import (
    BrokerSection,
    FileModel,
    SinkEntry,
    SourceEntry,
    TopicCreationSettings,
)
from mainstem.pipelines.running.client_options import cluster_of


class RequiredTopic(Struct, frozen=True, kw_only=True):
    """A topic that a pipeline needs; None means the default number."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    auto_create: bool | None = None
    configs: Mapping[str, str] = {}


def required_topics(entry: SourceEntry | SinkEntry, model: FileModel) -> list[RequiredTopic]:
    """The topics of one pipeline. A sink's topic is created as its source configures."""
    wanted: dict[str, RequiredTopic] = {}
    if isinstance(entry, SourceEntry):
        for name in [entry.topic, *(route.topic for route in entry.tables)]:
            wanted[name] = _of_source(name, entry)
    else:
        feeding = {source.topic: source for source in model.sources.values()}
        for name in entry.topics:
            if not rules.is_pattern(name):
                source = feeding.get(name)
                wanted[name] = _of_source(name, source) if source else RequiredTopic(name=name)
    if entry.dead_letter_topic is not None:
        name = entry.dead_letter_topic
        wanted.setdefault(name, RequiredTopic(name=name, partitions=1))
    return list(wanted.values())


def ensure_topics(
    broker: BrokerSection, settings: TopicCreationSettings, wanted: Iterable[RequiredTopic]
) -> None:
    """Create missing topics, or refuse.

    Raises:
        MainstemError: a topic is missing and may not be created, exists with other numbers than
            configured, or the cluster does not answer.
    """

    async def ensure() -> None:
        cluster = cluster_of(broker)
        try:
            admin = Admin(cluster, timeout_ms=broker.request_timeout_ms)
            existing = await admin.list_topics(with_internal=True)
            missing = []
            for topic in wanted:
                if topic.name in existing:
                    _compare(topic, existing[topic.name], settings)
                else:
                    missing.append(_to_create(topic, settings))
            for new in missing:
                await _create(admin, new)
        finally:
            await cluster.close()

    asyncio.run(ensure())


def offsets_json(broker: BrokerSection, topics: Iterable[str], offset: int) -> str:
    """One offset for every partition of some topics, in the format of ``startingOffsets``.

    Raises:
        MainstemError: a topic does not exist, or the cluster does not answer.
    """

    async def ask() -> dict[str, TopicInfo]:
        cluster = cluster_of(broker)
        try:
            return await Admin(cluster, timeout_ms=broker.request_timeout_ms).describe_topics(
                topics
            )
        finally:
            await cluster.close()

    found = asyncio.run(ask())
    offsets = {
        name: dict.fromkeys(map(str, info.partitions), offset) for name, info in found.items()
    }
    return json.dumps(offsets)


async def _create(admin: Admin, topic: NewTopic) -> None:
    try:
        await admin.create_topics([topic])
    except MainstemError as error:
        if error.code is not ErrorCode.TOPIC_EXISTS:  # another pipeline created it first
            raise


def _of_source(name: str, entry: SourceEntry) -> RequiredTopic:
    asked = entry.topic_config
    return RequiredTopic(
        name=name,
        partitions=asked.partitions,
        replication_factor=asked.replication_factor,
        auto_create=asked.auto_create,
        configs=asked.configs,
    )


def _to_create(topic: RequiredTopic, settings: TopicCreationSettings) -> NewTopic:
    allowed = settings.auto_create if topic.auto_create is None else topic.auto_create
    if settings.require_topic_exists or not allowed:
        why = (
            "require_topic_exists is set" if settings.require_topic_exists else "auto_create is off"
        )
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"the topic does not exist, and {why}",
            subject=topic.name,
            remedy=f"mainstem topic create {topic.name}",
        )
    return NewTopic(
        name=topic.name,
        partitions=topic.partitions or settings.default_partitions,
        replication_factor=topic.replication_factor or settings.default_replication_factor,
        configs=topic.configs,
    )


def _compare(topic: RequiredTopic, found: TopicInfo, settings: TopicCreationSettings) -> None:
    if not settings.validate_existing:
        return
    partitions = len(found.partitions)
    copies = min((len(part.replicas) for part in found.partitions.values()), default=0)
    for what, asked, there in (
        ("partitions", topic.partitions, partitions),
        ("replicas", topic.replication_factor, copies),
    ):
        if asked is not None and asked != there:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"the topic has {there} {what}, the file configures {asked}",
                subject=topic.name,
                remedy="change topic_config, or disable validate_existing",
            )
