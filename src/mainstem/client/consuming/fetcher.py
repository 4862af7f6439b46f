"""Fetches for a consumer: one long-polling fetch per node at a time.

Guarantees: a partition is fetched again only when its buffer is empty, so memory stays within one
response per node; retriable errors are retried after a metadata refresh; others are raised by the
next ``take``.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from mainstem.client import errors
from mainstem.client.cluster import Cluster
from mainstem.client.concurrency.background_tasks import TaskSet
from mainstem.client.consuming.fetch_buffer import FetchBuffer
from mainstem.client.consuming.offset_query import EARLIEST, LATEST
from mainstem.client.settings import ConsumerSettings
from mainstem.client.values import ConsumerRecord, TopicPartition
from mainstem.model.errors import MainstemError
from mainstem.wire.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

RESETS: Final = {"earliest": EARLIEST, "latest": LATEST, "none": None}
RETRY_PAUSE_S: Final = 0.1
TOPIC_IDS_SINCE_VERSION: Final = 13
NO_TOPIC_ID: Final = bytes(16)


class Fetcher:
    """The driver that fetches for a consumer.

    Args:
        wakeup: is set whenever ``take`` may have more records.
    """

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, wakeup: asyncio.Event) -> None:
        self.feeds: dict[TopicPartition, FetchBuffer] = {}
        self._cluster = cluster
        self._settings = settings
        self._wakeup = wakeup
        self._reset_to = RESETS[settings.reset]
        self._tasks = TaskSet()
        self._busy_nodes: set[int] = set()
        self._is_refreshing = False
        self._failure: MainstemError | None = None

    def follow(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions and no others; those that stay keep their position."""
        wanted = list(partitions)
        self.feeds = {
            p: self.feeds.get(p) or FetchBuffer(p, reset_to=self._reset_to) for p in wanted
        }
        self._failure = None

    def take(self, count: int) -> list[ConsumerRecord]:
        """Up to so many records, from the partitions in turn.

        Raises:
            MainstemError: a partition cannot be read.
        """
        self._tasks.check()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        taken: list[ConsumerRecord] = []
        for partition, feed in list(self.feeds.items()):
            if feed.is_paused or feed.is_empty:
                continue
            taken += feed.take(count - len(taken))
            # Moved to the end, so that partitions take turns.
            self.feeds[partition] = self.feeds.pop(partition)
            if len(taken) >= count:
                break
        self.kick()
        return taken

    def kick(self) -> None:
        """Starts a fetch on every node that has partitions to fetch and no fetch under way."""
        now = asyncio.get_running_loop().time()
        groups: dict[int, list[FetchBuffer]] = {}
        for partition, feed in self.feeds.items():
            if not feed.may_fetch(now):
                continue
            info = self._cluster.known_topic(partition.topic)
            found = None if info is None else info.partitions.get(partition.partition)
            if found is None or found.leader < 0:
                self._look_at_cluster()
            elif found.leader not in self._busy_nodes:
                groups.setdefault(found.leader, []).append(feed)
        for node, feeds in groups.items():
            self._busy_nodes.add(node)
            for feed in feeds:
                feed.is_in_flight = True
            self._tasks.spawn(self._fetch(node, feeds))

    async def close(self) -> None:
        """Cancels all fetches."""
        await self._tasks.close()

    async def _fetch(self, node: int, feeds: list[FetchBuffer]) -> None:
        serials = {feed.partition: feed.serial for feed in feeds}
        try:
            answers = await self._ask(node, feeds)
        except MainstemError as error:
            answers = {}
            self._on_failure(feeds, error)
        finally:
            self._busy_nodes.discard(node)
            for feed in feeds:
                feed.is_in_flight = False
        for feed in feeds:
            answer = answers.get(feed.partition)
            # A seek or another assignment since then makes the response obsolete.
            if answer is None or feed.serial != serials[feed.partition]:
                continue
            if self.feeds.get(feed.partition) is feed:
                self._accept(feed, answer)
        self._wakeup.set()
        self.kick()

    async def _ask(
        self, node: int, feeds: list[FetchBuffer]
    ) -> dict[TopicPartition, PartitionData]:
        connection = await self._cluster.link(node).connection()
        ids = self._topic_ids(feed.partition.topic for feed in feeds)
        has_ids = NO_TOPIC_ID not in ids.values()
        version = connection.version_of("Fetch", None if has_ids else TOPIC_IDS_SINCE_VERSION - 1)
        topics = {name: FetchTopic(topic_id=ids[name], topic=name) for name in ids}
        for feed in feeds:
            assert feed.position is not None, "only located partitions are fetched"
            topics[feed.partition.topic].partitions.append(
                FetchPartition(
                    partition=feed.partition.partition,
                    current_leader_epoch=self._leader_epoch(feed.partition),
                    fetch_offset=feed.position,
                    partition_max_bytes=self._settings.partition_bytes_max,
                )
            )
        settings = self._settings
        response: FetchResponse = await connection.call(
            FetchRequest(
                max_wait_ms=settings.fetch_wait_ms,
                min_bytes=settings.fetch_bytes_min,
                max_bytes=settings.fetch_bytes_max,
                isolation_level=int(settings.isolation == "read_committed"),
                topics=list(topics.values()),
            ),
            version=version,
            timeout_ms=settings.request_timeout_ms + settings.fetch_wait_ms,
        )
        errors.check(response.error_code)
        names = {topic_id: name for name, topic_id in ids.items()}
        by_id = version >= TOPIC_IDS_SINCE_VERSION
        return {
            TopicPartition(names[t.topic_id] if by_id else t.topic, answer.partition_index): answer
            for t in response.responses
            for answer in t.partitions
        }

    def _topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        ids = {}
        for topic in topics:
            info = self._cluster.known_topic(topic)
            ids[topic] = NO_TOPIC_ID if info is None else info.id
        return ids

    def _leader_epoch(self, partition: TopicPartition) -> int:
        info = self._cluster.known_topic(partition.topic)
        found = None if info is None else info.partitions.get(partition.partition)
        return -1 if found is None else found.leader_epoch

    def _accept(self, feed: FetchBuffer, answer: PartitionData) -> None:
        try:
            if answer.error_code == errors.OFFSET_OUT_OF_RANGE and feed.reset_to is not None:
                feed.move(None)
                feed.is_out_of_range = True
                return
            errors.check(answer.error_code, subject=str(feed.partition))
            feed.high_watermark = answer.high_watermark
            aborted = [(a.first_offset, a.producer_id) for a in answer.aborted_transactions or ()]
            if answer.records is not None:
                feed.accept(answer.records, aborted)
        except MainstemError as error:
            self._on_failure([feed], error)

    def _on_failure(self, feeds: Collection[FetchBuffer], error: MainstemError) -> None:
        loop = asyncio.get_running_loop()
        for feed in feeds:
            feed.not_before = loop.time() + RETRY_PAUSE_S
        if errors.may_retry(error):
            self._look_at_cluster()
        elif self._failure is None:
            self._failure = error

    def _look_at_cluster(self) -> None:
        if not self._is_refreshing:
            self._is_refreshing = True
            self._tasks.spawn(self._refresh())

    async def _refresh(self) -> None:
        try:
            await self._cluster.refresh()
            for topic in {partition.topic for partition in self.feeds}:
                await self._cluster.topic(topic)
        except MainstemError as error:
            if not errors.may_retry(error) and self._failure is None:
                self._failure = error
        await asyncio.sleep(RETRY_PAUSE_S)
        self._is_refreshing = False
        self._wakeup.set()
        self.kick()
