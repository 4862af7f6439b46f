"""A member of a classic consumer group: join, sync, heartbeat, leave.

    join -> sync -> (heartbeat ...) -> rebalance -> join -> ...

Guarantees: the group is joined in the background, once at a time, so short polls do not disturb
it; heartbeats continue while the caller works, and stop when it has not polled for
``poll_interval_ms_max``; whatever ends the membership sets ``needs_join``.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from mainstem.client import errors
from mainstem.client.administration.groups import CONSUMER_PROTOCOL, read_assignment
from mainstem.client.cluster import Cluster
from mainstem.client.concurrency.background_tasks import TaskSet
from mainstem.client.consuming.assignors import ASSIGNORS, SubscribedMember
from mainstem.client.consuming.committed_offsets import CommittingMember
from mainstem.client.settings import ConsumerSettings
from mainstem.client.values import TopicPartition
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from mainstem.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from mainstem.wire.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from mainstem.wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from mainstem.wire.kafka.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

RETRY_PAUSE_S: Final = 0.1
ANSWER_SLACK_MS: Final = 5_000
LEAVE_TIMEOUT_MS: Final = 5_000
TOPICS_CHECK_S: Final = 30.0
MISSING_TOPICS_CHECK_S: Final = 1.0
SUBSCRIPTION_VERSION: Final = 1
SUBSCRIPTION_VERSION_MAX: Final = 3

# The coordinator no longer knows the member: join again without an id.
_FORGOTTEN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER, ErrorCode.ILLEGAL_GENERATION})


class GroupMembership:
    """The membership of a consumer in a group.

    Args:
        wakeup: is set when the consumer should check the group again.
    """

    def __init__(
        self, cluster: Cluster, group: str, settings: ConsumerSettings, wakeup: asyncio.Event
    ) -> None:
        unknown = [name for name in settings.assignors if name not in ASSIGNORS]
        if unknown or not settings.assignors:
            raise InvalidRequest(
                ErrorCode.INCONSISTENT_PROTOCOL,
                f"unknown assignors {unknown}",
                remedy=f"use some of {', '.join(ASSIGNORS)}",
            )
        self.group = group
        self.needs_join = True
        self.failure: MainstemError | None = None
        self._cluster = cluster
        self._settings = settings
        self._wakeup = wakeup
        self._tasks = TaskSet()
        self._joining: asyncio.Task[list[TopicPartition]] | None = None
        self._heart: asyncio.Task[None] | None = None
        self._topics: frozenset[str] = frozenset()
        self._counts: dict[str, int] | None = None  # partition counts at the leader's assignment
        self._member_id = ""
        self._generation = -1
        self._asked_at = asyncio.get_running_loop().time()

    @property
    def stamp(self) -> CommittingMember:
        """The identity with which this member commits offsets."""
        return CommittingMember(self._member_id, self._generation, self._settings.instance_id)

    @property
    def is_joining(self) -> bool:
        """Whether a join is running or done and its result was not taken yet."""
        return self._joining is not None

    def asked(self) -> None:
        """Notes a poll of the caller.

        Raises:
            MainstemError: the group has removed this member permanently.
        """
        self._tasks.check()
        if self.failure is not None:
            raise self.failure
        self._asked_at = asyncio.get_running_loop().time()

    async def join(self, topics: Collection[str]) -> list[TopicPartition]:
        """Joins, or continues joining; returns the partitions to read. May be cancelled any time.

        Raises:
            MainstemError: the group refuses this member.
        """
        if self._joining is None:
            self._topics = frozenset(topics)
            self.needs_join = False
            await self._stop_heart()
            self._joining = asyncio.get_running_loop().create_task(self._join())
        joining = self._joining
        try:
            partitions = await asyncio.shield(joining)
        except asyncio.CancelledError:
            raise  # the poll timed out; the task continues
        except BaseException:
            self._joining = None
            self.needs_join = True
            raise
        self._joining = None
        self._heart = self._tasks.spawn(self._beat())
        return partitions

    async def close(self) -> None:
        """Leaves the group, so that others need not wait for a time-out; static members stay."""
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
        await self._tasks.close()
        if self._settings.instance_id is None:
            await self._leave("the consumer was closed")

    async def _join(self) -> list[TopicPartition]:
        while True:
            try:
                return await self._join_once()
            except MainstemError as error:
                if error.code in _FORGOTTEN:
                    self._forget()
                elif error.code is ErrorCode.MEMBER_ID_REQUIRED:
                    continue  # the response has the member id to join with
                elif errors.may_retry(error):
                    self._cluster.forget_coordinator(self.group)
                    await asyncio.sleep(RETRY_PAUSE_S)
                else:
                    raise

    async def _join_once(self) -> list[TopicPartition]:
        settings = self._settings
        subscription = ConsumerProtocolSubscription(topics=sorted(self._topics))
        metadata = codec.encode_data(
            "ConsumerProtocolSubscription", SUBSCRIPTION_VERSION, subscription
        )
        link = await self._cluster.coordinator(self.group)
        joined: JoinGroupResponse = await link.call(
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=settings.session_timeout_ms,
                rebalance_timeout_ms=settings.poll_interval_ms_max,
                member_id=self._member_id,
                group_instance_id=settings.instance_id,
                protocol_type=CONSUMER_PROTOCOL,
                protocols=[JoinGroupRequestProtocol(n, metadata) for n in settings.assignors],
            ),
            timeout_ms=settings.poll_interval_ms_max + ANSWER_SLACK_MS,
        )
        if joined.member_id:
            self._member_id = joined.member_id
        errors.check(joined.error_code, subject=self.group)
        self._generation = joined.generation_id
        assignments = await self._assign(joined)
        synced: SyncGroupResponse = await link.call(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=settings.instance_id,
                protocol_type=CONSUMER_PROTOCOL,
                protocol_name=joined.protocol_name,
                assignments=assignments,
            ),
            timeout_ms=settings.poll_interval_ms_max + ANSWER_SLACK_MS,
        )
        errors.check(synced.error_code, subject=self.group)
        return list(read_assignment(CONSUMER_PROTOCOL, synced.assignment))

    async def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """The leader's part: assigns the partitions to all members."""
        if joined.leader != joined.member_id or joined.skip_assignment:
            self._counts = None
            return []
        members = []
        for member in joined.members:
            try:
                _, subscription = codec.decode_data(
                    "ConsumerProtocolSubscription", SUBSCRIPTION_VERSION_MAX, member.metadata
                )
            except codec.Malformed as error:
                raise Corrupt(
                    f"the subscription of {member.member_id}: {error}", subject=self.group
                ) from error
            topics = frozenset(subscription.topics)
            members.append(SubscribedMember(member.member_id, member.group_instance_id, topics))
        wanted = frozenset().union(*(member.topics for member in members))
        await self._cluster.refresh()  # partitions may have been added since the last refresh
        self._counts = await self._count_partitions(wanted)
        assign = ASSIGNORS[joined.protocol_name or ""]
        return [
            SyncGroupRequestAssignment(member_id, _encode(partitions))
            for member_id, partitions in assign(members, self._counts).items()
        ]

    async def _count_partitions(self, topics: Collection[str]) -> dict[str, int]:
        """How many partitions each topic has; one that does not exist yet has none."""
        counts = {}
        for name in sorted(topics):
            try:
                counts[name] = len((await self._cluster.topic(name)).partitions)
            except MainstemError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC:
                    raise
                counts[name] = 0
        return counts

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        checked_at = loop.time()
        while not self.failure:
            await asyncio.sleep(self._settings.heartbeat_interval_ms / 1000)
            if (loop.time() - self._asked_at) * 1000 > self._settings.poll_interval_ms_max:
                await self._leave("the consumer has stopped polling")
                self._ask_to_join()
                return
            if not await self._beat_once():
                return
            missing = self._counts is not None and 0 in self._counts.values()
            pause = MISSING_TOPICS_CHECK_S if missing else TOPICS_CHECK_S
            if self._counts is not None and loop.time() - checked_at > pause:
                checked_at = loop.time()
                await self._check_topics()

    async def _beat_once(self) -> bool:
        """Sends one heartbeat; False when this membership is over."""
        try:
            link = await self._cluster.coordinator(self.group)
            response: HeartbeatResponse = await link.call(
                HeartbeatRequest(
                    group_id=self.group,
                    generation_id=self._generation,
                    member_id=self._member_id,
                    group_instance_id=self._settings.instance_id,
                ),
                timeout_ms=self._settings.session_timeout_ms,
            )
            errors.check(response.error_code, subject=self.group)
        except MainstemError as error:
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                self._ask_to_join()  # heartbeats continue until the next poll joins again
            elif error.code in _FORGOTTEN:
                self._forget()
                self._ask_to_join()
                return False
            elif errors.may_retry(error):
                self._cluster.forget_coordinator(self.group)
            else:
                self.failure = error
                self._wakeup.set()
                return False
        return True

    async def _check_topics(self) -> None:
        """Checks, on the leader, whether partitions were added since the assignment."""
        assert self._counts is not None, "only the leader has counts"
        try:
            await self._cluster.refresh()
            counts = await self._count_partitions(self._counts)
        except MainstemError as error:
            if not errors.may_retry(error):
                self.failure = error
                self._wakeup.set()
            return
        if counts != self._counts:
            self._ask_to_join()

    def _ask_to_join(self) -> None:
        self.needs_join = True
        self._wakeup.set()

    def _forget(self) -> None:
        self._member_id = ""
        self._generation = -1

    async def _stop_heart(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)
            self._heart = None

    async def _leave(self, reason: str) -> None:
        if not self._member_id:
            return
        member_id, instance_id = self._member_id, self._settings.instance_id
        self._forget()
        try:
            link = await self._cluster.coordinator(self.group)
            await link.call(
                LeaveGroupRequest(
                    group_id=self.group,
                    members=[MemberIdentity(member_id, instance_id, reason)],
                    member_id=member_id,
                ),
                timeout_ms=LEAVE_TIMEOUT_MS,
            )
        except MainstemError:
            return  # the session time-out removes the member


def _encode(partitions: list[TopicPartition]) -> bytes:
    topics: dict[str, AssignmentTopicPartition] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, AssignmentTopicPartition(topic)).partitions.append(partition)
    return codec.encode_data(
        "ConsumerProtocolAssignment",
        SUBSCRIPTION_VERSION,
        ConsumerProtocolAssignment(assigned_partitions=list(topics.values())),
    )
