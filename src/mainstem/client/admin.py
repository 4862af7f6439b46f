"""Administration: topics, partitions, settings, records, nodes.

Groups, transactions, rules, passwords, quotas and delegation tokens have modules of their own.
Every call either succeeds as a whole or raises the first refusal, with the broker's message in the
error.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from msgspec import Struct

from mainstem.client import errors
from mainstem.client.administration.acls import AclAdmin
from mainstem.client.administration.client_metrics import ClientMetricsAdmin
from mainstem.client.administration.cluster import ClusterAdmin
from mainstem.client.administration.credentials import CredentialAdmin
from mainstem.client.administration.delegation_tokens import DelegationTokenAdmin
from mainstem.client.administration.groups import GroupAdmin
from mainstem.client.administration.quotas import QuotaAdmin
from mainstem.client.administration.transactions import TransactionAdmin
from mainstem.client.cluster import Cluster
from mainstem.client.consuming.offset_query import list_offsets
from mainstem.client.network.link import Link
from mainstem.client.values import (
    ClusterInfo,
    ConfigEntry,
    LogDir,
    LogDirPartition,
    NodeInfo,
    OffsetAndTime,
    TopicInfo,
    TopicPartition,
)
from mainstem.wire.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from mainstem.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from mainstem.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from mainstem.wire.kafka.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from mainstem.wire.kafka.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from mainstem.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from mainstem.wire.kafka.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from mainstem.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ANSWER_SLACK_MS: Final = 2_000

TOPIC: Final = 2  # resource types of settings
NODE: Final = 4
OPERATIONS: Final = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
CONFIG_SOURCES: Final = {
    0: "unknown",
    1: "topic",
    2: "node (dynamic)",
    3: "cluster (dynamic)",
    4: "node",
    5: "default",
    6: "node logger",
    7: "client metrics",
    8: "group",
}


class NewTopic(Struct, frozen=True, kw_only=True):
    """A topic to be created; -1 leaves a number to the cluster."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = {}


class Admin:
    """Administers a cluster. An async context manager.

    Args:
        cluster: where to send requests; given an address (or several), the admin owns its cluster.
        timeout_ms: how long a call may take, retries included.
    """

    def __init__(self, cluster: Cluster | str | Sequence[str], *, timeout_ms: int = 60_000) -> None:
        self._owns_cluster = not isinstance(cluster, Cluster)
        self._cluster = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
        self._timeout_ms = timeout_ms
        self.groups = GroupAdmin(self._cluster, timeout_ms=timeout_ms)
        self.transactions = TransactionAdmin(self._cluster, timeout_ms=timeout_ms)
        self.acls = AclAdmin(self._cluster, timeout_ms=timeout_ms)
        self.credentials = CredentialAdmin(self._cluster, timeout_ms=timeout_ms)
        self.quotas = QuotaAdmin(self._cluster, timeout_ms=timeout_ms)
        self.client_metrics = ClientMetricsAdmin(self._cluster, timeout_ms=timeout_ms)
        self.cluster = ClusterAdmin(self._cluster, timeout_ms=timeout_ms)
        self.delegation_tokens = DelegationTokenAdmin(self._cluster, timeout_ms=timeout_ms)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        if self._owns_cluster:
            await self._cluster.close()

    # Topics.

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> None:
        """Creates topics, or only checks whether they could be created."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    configs=[CreatableTopicConfig(n, v) for n, v in topic.configs.items()],
                )
                for topic in topics
            ],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        response: CreateTopicsResponse = await self._at_controller(request)
        for answer in response.topics:
            errors.check(answer.error_code, answer.error_message, subject=answer.name)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
    ) -> None:
        """Creates one topic."""
        topic = NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs or {},
        )
        await self.create_topics([topic])

    async def delete_topics(self, names: Collection[str]) -> None:
        """Deletes topics and all their records."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names],
            topic_names=list(names),
            timeout_ms=self._timeout_ms,
        )
        response: DeleteTopicsResponse = await self._at_controller(request)
        for answer in response.responses:
            # A missing topic is a final answer here, though a producer would retry.
            errors.check(answer.error_code, answer.error_message, subject=answer.name or "")

    async def list_topics(self, *, with_internal: bool = False) -> dict[str, TopicInfo]:
        """All topics by name."""
        topics = await self._cluster.retrying(self._cluster.all_topics, timeout_ms=self._timeout_ms)
        return {
            name: topics[name]
            for name in sorted(topics)
            if with_internal or not topics[name].is_internal
        }

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Named topics.

        Raises:
            Unavailable: one of them does not exist.
        """
        return await self._cluster.topics(list(names))

    async def create_partitions(self, topic: str, total: int) -> None:
        """Raises the number of partitions of a topic to ``total``."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total)], timeout_ms=self._timeout_ms
        )
        response: CreatePartitionsResponse = await self._at_controller(request)
        for answer in response.results:
            errors.check(answer.error_code, answer.error_message, subject=answer.name)

    # Settings.

    async def topic_configs(self, topic: str) -> list[ConfigEntry]:
        """The settings of a topic, by name."""
        return await self._configs(TOPIC, topic, None)

    async def node_configs(self, node: int) -> list[ConfigEntry]:
        """The settings of a node, by name."""
        await self._cluster.refresh()
        return await self._configs(NODE, str(node), self._cluster.link(node))

    async def alter_topic_configs(
        self,
        topic: str,
        *,
        changed: Mapping[str, str] | None = None,
        removed: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Sets some settings of a topic and resets others to their defaults."""
        configs = [
            AlterableConfig(name, OPERATIONS["set"], value)
            for name, value in (changed or {}).items()
        ]
        configs += [AlterableConfig(name, OPERATIONS["delete"], None) for name in removed]
        request = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(TOPIC, topic, configs)], validate_only=validate_only
        )
        response: IncrementalAlterConfigsResponse = await self._at_controller(request)
        for answer in response.responses:
            errors.check(answer.error_code, answer.error_message, subject=answer.resource_name)

    # Records and offsets.

    async def delete_records(
        self, until: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Deletes all records below the offsets (-1: all records); returns the new starts."""
        starts: dict[TopicPartition, int] = {}

        async def delete_the_rest() -> None:
            for partition, offset in until.items():
                if partition not in starts:
                    starts[partition] = await self._delete_below(partition, offset)

        await self._cluster.retrying(delete_the_rest, timeout_ms=self._timeout_ms)
        return starts

    async def offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTime]:
        """Offsets by timestamp or by the constants of ``offset_query``."""
        return await list_offsets(
            self._cluster, wanted, read_committed=read_committed, timeout_ms=self._timeout_ms
        )

    # Nodes.

    async def describe_cluster(self) -> ClusterInfo:
        """The cluster's id, controller and nodes."""
        response: DescribeClusterResponse = await self._cluster.call_any(DescribeClusterRequest())
        errors.check(response.error_code, response.error_message)
        nodes = [NodeInfo(n.broker_id, n.host, n.port, n.rack) for n in response.brokers]
        nodes.sort(key=lambda node: node.id)
        return ClusterInfo(response.cluster_id, response.controller_id, tuple(nodes))

    async def log_dirs(self, nodes: Collection[int] | None = None) -> list[LogDir]:
        """The contents of each log directory, on some or all nodes."""
        await self._cluster.refresh()
        asked = nodes if nodes is not None else [node.id for node in self._cluster.info.nodes]
        found = await asyncio.gather(*(_log_dirs_of(self._cluster, node) for node in asked))
        return [directory for directories in found for directory in directories]

    # Internals.

    async def _at_controller(self, request: Struct) -> Any:
        """Calls the controller; in a newer cluster any broker forwards the call."""
        # The broker may use the whole time-out of the request itself.
        return await self._cluster.call_controller(
            request, timeout_ms=self._timeout_ms + ANSWER_SLACK_MS
        )

    async def _configs(self, kind: int, name: str, link: Link | None) -> list[ConfigEntry]:
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(kind, name, None)], include_documentation=True
        )
        asked = self._cluster.call_any(request) if link is None else link.call(request)
        response: DescribeConfigsResponse = await asked
        [result] = response.results
        errors.check(result.error_code, result.error_message, subject=name)
        entries = [
            ConfigEntry(
                name=entry.name,
                value=entry.value,
                source=CONFIG_SOURCES.get(entry.config_source, "unknown"),
                is_read_only=entry.read_only,
                is_sensitive=entry.is_sensitive,
                documentation=entry.documentation,
            )
            for entry in result.configs
        ]
        return sorted(entries, key=lambda entry: entry.name)

    async def _delete_below(self, partition: TopicPartition, offset: int) -> int:
        link, _ = await self._cluster.leader(*partition)
        topic = DeleteRecordsTopic(
            partition.topic, [DeleteRecordsPartition(partition.partition, offset)]
        )
        response: DeleteRecordsResponse = await link.call(
            DeleteRecordsRequest([topic], self._timeout_ms),
            timeout_ms=self._timeout_ms + ANSWER_SLACK_MS,
        )
        [answer] = response.topics[0].partitions
        errors.check(answer.error_code, subject=str(partition))
        return answer.low_watermark


async def _log_dirs_of(cluster: Cluster, node: int) -> list[LogDir]:
    response: DescribeLogDirsResponse = await cluster.link(node).call(
        DescribeLogDirsRequest(topics=None)
    )
    errors.check(response.error_code, subject=f"node {node}")
    directories = []
    for result in response.results:
        errors.check(result.error_code, subject=result.log_dir)
        partitions = [
            LogDirPartition(topic.name, p.partition_index, p.partition_size, p.offset_lag)
            for topic in result.topics
            for p in topic.partitions
        ]
        partitions.sort(key=lambda p: (p.topic, p.partition))
        directories.append(
            LogDir(node, result.log_dir, result.total_bytes, result.usable_bytes, tuple(partitions))
        )
    return directories
