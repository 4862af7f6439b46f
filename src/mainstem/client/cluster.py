"""The client's view of the cluster: nodes, partition leaders, coordinators.

Guarantees: the view is refreshed when it is old, when a topic is missing and when a response shows
that it is wrong; concurrent refreshes are shared; every retry ends at the caller's deadline.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec

from mainstem.client import errors
from mainstem.client.connection import ConnectionSettings
from mainstem.client.network.link import Link
from mainstem.client.values import ClusterInfo, NodeInfo, PartitionInfo, TopicInfo
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from mainstem.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

METADATA_AGE_MS_MAX: Final = 300_000
RETRY_PAUSE_MS_MIN: Final = 50
RETRY_PAUSE_MS_MAX: Final = 1_000
DEFAULT_PORT: Final = 9092

T = TypeVar("T")

_log = logging.getLogger(__name__)


class CoordinatorKey(NamedTuple):
    """What a coordinator is looked up for: a group, unless set otherwise."""

    name: str
    kind: int = 0

    @classmethod
    def transaction(cls, transactional_id: str) -> Self:
        """The key of a transactional id."""
        return cls(transactional_id, kind=1)


class Cluster:
    """Links to the nodes of one cluster, and its metadata. An async context manager."""

    def __init__(
        self, bootstrap: str | Iterable[str], settings: ConnectionSettings | None = None
    ) -> None:
        self.settings = settings or ConnectionSettings()
        addresses = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
        self._bootstrap = [Link(*parse_address(text), self.settings) for text in addresses]
        self._links: dict[int, Link] = {}
        self._coordinators: dict[CoordinatorKey, int] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._wanted: set[str] = set()
        self._refreshed_at = float("-inf")
        self._refresh: asyncio.Task[None] | None = None
        self.info = ClusterInfo(id=None, controller=-1, nodes=())

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
        """Closes every connection."""
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.gather(self._refresh, return_exceptions=True)
        for link in [*self._bootstrap, *self._links.values()]:
            await link.close()

    # The view.

    async def topic(self, name: str) -> TopicInfo:
        """One topic; asks the cluster when it is not known yet or the view is old.

        Raises:
            Unavailable: the topic does not exist (yet), or no node responds.
        """
        known = self._topics.get(name)
        age = asyncio.get_running_loop().time() - self._refreshed_at
        if known is None or age * 1000 > METADATA_AGE_MS_MAX:
            self._wanted.add(name)
            joined = self._refresh is not None
            await self.refresh()
            if joined and name not in self._topics:
                await self.refresh()  # the refresh under way did not include this topic
            known = self._topics.get(name)
        if known is None:
            raise errors.error_of(errors.UNKNOWN_TOPIC_OR_PARTITION, subject=name)
        return known

    def known_topic(self, name: str) -> TopicInfo | None:
        """The cached metadata of a topic, without a request."""
        return self._topics.get(name)

    async def leader(self, topic: str, partition: int) -> tuple[Link, PartitionInfo]:
        """The node that writes a partition.

        Raises:
            Unavailable: there is none at the moment, or the partition does not exist (yet).
        """
        info = await self.topic(topic)
        found = info.partitions.get(partition)
        subject = f"{topic}-{partition}"
        if found is None:
            raise errors.error_of(errors.UNKNOWN_TOPIC_OR_PARTITION, subject=subject)
        link = self._links.get(found.leader)
        if link is None:
            raise Unavailable(
                ErrorCode.WRITER_UNAVAILABLE, "the partition has no leader", subject=subject
            )
        return link, found

    def link(self, node_id: int) -> Link:
        """The link to a node of the current view."""
        try:
            return self._links[node_id]
        except KeyError:
            raise Unavailable(
                ErrorCode.WRITER_UNAVAILABLE, f"node {node_id} is not in the cluster"
            ) from None

    async def refresh(self) -> None:
        """Refreshes the metadata of all topics in use; shared by concurrent callers."""
        if self._refresh is None:
            self._refresh = asyncio.get_running_loop().create_task(self._renew())
            self._refresh.add_done_callback(self._renewed)
        await asyncio.shield(self._refresh)

    async def all_topics(self) -> dict[str, TopicInfo]:
        """Every topic of the cluster."""
        response: MetadataResponse = await self.call_any(
            MetadataRequest(topics=None, allow_auto_topic_creation=False)
        )
        self._learn_nodes(response)
        return {
            topic.name: topic_info(topic)
            for topic in response.topics
            if topic.name is not None and not topic.error_code
        }

    async def topics(self, names: Iterable[str], *, create: bool = False) -> dict[str, TopicInfo]:
        """The given topics, without the cache; ``create`` lets the cluster create missing ones.

        Raises:
            MainstemError: one of them does not exist or may not be seen.
        """
        wanted = [MetadataRequestTopic(name=name) for name in dict.fromkeys(names)]
        response: MetadataResponse = await self.call_any(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        )
        self._learn_nodes(response)
        found = {}
        for topic in response.topics:
            errors.check(topic.error_code, subject=topic.name or "")
            assert topic.name is not None, "a topic that was asked for by name has one"
            found[topic.name] = self._topics[topic.name] = topic_info(topic)
        return found

    # Calls.

    async def call_any(self, request: msgspec.Struct, *, timeout_ms: int | None = None) -> Any:
        """Calls any node; connected ones first, those that just failed last."""
        failure: MainstemError | None = None
        candidates = [*self._links.values(), *self._bootstrap]
        candidates.sort(key=lambda link: (not link.is_connected, link.is_resting))
        for link in candidates:
            try:
                return await link.call(request, timeout_ms=timeout_ms)
            except Unavailable as error:
                failure = error
        assert failure is not None, "there is at least one bootstrap address"
        raise failure

    async def call_controller(
        self, request: msgspec.Struct, *, timeout_ms: int | None = None
    ) -> Any:
        """Calls the controller, or any node if the cluster does not name one."""
        if not self.info.nodes:
            await self.refresh()
        link = self._links.get(self.info.controller)
        if link is None:
            return await self.call_any(request, timeout_ms=timeout_ms)
        return await link.call(request, timeout_ms=timeout_ms)

    async def coordinator(self, key: str | CoordinatorKey) -> Link:
        """The coordinator of a group (by its name) or a transactional id.

        Raises:
            Unavailable: there is none at the moment.
        """
        wanted = CoordinatorKey(key) if isinstance(key, str) else key
        known = self._links.get(self._coordinators.get(wanted, -1))
        if known is not None:
            return known
        response: FindCoordinatorResponse = await self.call_any(
            FindCoordinatorRequest(
                key=wanted.name, key_type=wanted.kind, coordinator_keys=[wanted.name]
            )
        )
        found = response.coordinators[0] if response.coordinators else _old_form(response)
        errors.check(found.error_code, found.error_message, subject=wanted.name)
        self._learn_node(NodeInfo(found.node_id, found.host, found.port))
        self._coordinators[wanted] = found.node_id
        return self._links[found.node_id]

    def forget_coordinator(self, key: str | CoordinatorKey) -> None:
        """Makes the next call look up the coordinator again."""
        self._coordinators.pop(CoordinatorKey(key) if isinstance(key, str) else key, None)

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_ms: int,
        group: str | CoordinatorKey | None = None,
    ) -> T:
        """Repeats an attempt while its errors are retriable.

        Raises:
            MainstemError: the last error, when the time is up or it is not retriable.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        pause_ms = RETRY_PAUSE_MS_MIN
        last: MainstemError | None = None
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await attempt()
            except TimeoutError:
                late = Unavailable(ErrorCode.TIMED_OUT, f"no response within {timeout_ms} ms")
                raise last or late from None
            except MainstemError as error:
                if not errors.may_retry(error) or loop.time() + pause_ms / 1000 > deadline:
                    raise
                last = error
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(RETRY_PAUSE_MS_MAX, pause_ms * 2)
            if group is not None:
                self.forget_coordinator(group)
            elif self._wanted:
                # The next attempt fails for the same reason and reports it.
                with contextlib.suppress(Unavailable):
                    await self.refresh()

    # Metadata.

    async def _renew(self) -> None:
        wanted = [MetadataRequestTopic(name=name) for name in sorted(self._wanted)]
        # Only a new name may create a topic: a refresh must not re-create a deleted one.
        create = not self._wanted <= self._topics.keys()
        response: MetadataResponse = await self.call_any(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        )
        self._learn_nodes(response)
        for topic in response.topics:
            assert topic.name is not None, "topics are asked for by name"
            if topic.error_code:
                self._topics.pop(topic.name, None)
                self._wanted.discard(topic.name)
                error = errors.error_of(topic.error_code, subject=topic.name)
                if not errors.may_retry(error):
                    raise error
            else:
                self._topics[topic.name] = topic_info(topic)
        self._refreshed_at = asyncio.get_running_loop().time()

    def _renewed(self, refresh: asyncio.Task[None]) -> None:
        self._refresh = None
        if not refresh.cancelled():
            refresh.exception()  # mark as retrieved; callers that still wait raise it

    def _learn_nodes(self, response: MetadataResponse) -> None:
        errors.check(response.error_code)
        nodes = tuple(
            NodeInfo(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        )
        for node in nodes:
            self._learn_node(node)
        self.info = ClusterInfo(response.cluster_id, response.controller_id, nodes)

    def _learn_node(self, node: NodeInfo) -> None:
        """Keeps a link while its address is unchanged; a node that moved gets a new one."""
        link = self._links.get(node.id)
        if link is None or (link.host, link.port) != (node.host, node.port):
            self._links[node.id] = Link(node.host, node.port, self.settings)
            if link is not None:
                # Calls under way fail as retriable and find the new address.
                link.abandon()


def topic_info(topic: MetadataResponseTopic) -> TopicInfo:
    """Converts a topic of a metadata response."""
    assert topic.name is not None, "topics are asked for by name"
    return TopicInfo(
        name=topic.name,
        id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions={
            partition.partition_index: PartitionInfo(
                index=partition.partition_index,
                leader=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replicas=tuple(partition.replica_nodes),
                in_sync=tuple(partition.isr_nodes),
                offline=tuple(partition.offline_replicas),
            )
            for partition in sorted(topic.partitions, key=lambda p: p.partition_index)
        },
    )


async def call_each(
    cluster: Cluster, request: msgspec.Struct, *, timeout_ms: int | None = None
) -> list[tuple[int, Any]]:
    """Calls every node, one after the other; those that do not respond are omitted."""
    await cluster.refresh()
    answers = []
    for node in sorted(node.id for node in cluster.info.nodes):
        try:
            answer = await cluster._links[node].call(request, timeout_ms=timeout_ms)
        except Unavailable as error:
            _log.debug("node %d does not respond: %s", node, error)
        else:
            answers.append((node, answer))
    return answers


def parse_address(text: str) -> tuple[str, int]:
    """``host``, ``host:port`` or ``[v6]:port`` to host and port.

    Raises:
        InvalidRequest: it is none of these.
    """
    text = text.strip()
    host, separator, port = text.rpartition(":")
    is_bare_v6 = text.count(":") > 1 and not text.startswith("[")
    if not separator or is_bare_v6 or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, "not an address", subject=text, remedy="write host:port"
        )
    return host, int(port)


def _old_form(response: FindCoordinatorResponse) -> Coordinator:
    return Coordinator(
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )
