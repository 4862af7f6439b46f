"""Wires the groups of a node: their coordinators, and the storage of their states."""

from collections.abc import Mapping, Sequence

from mainstem.broker.api.broker import Streams
from mainstem.broker.api.groups import AllGroups
from mainstem.broker.services.all_groups_service import LocalGroups
from mainstem.broker.services.share_offsets_service import ShareOffsets
from mainstem.broker.services.share_partition_service import SharePartitions, ShareStore
from mainstem.broker.services.share_service import ShareService
from mainstem.broker.services.topics_service import TopicsAdmin
from mainstem.cluster.peers.frames import PeerService
from mainstem.coordination.groups.service import GroupCoordinator
from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.coordination.share.service import ShareGroupCoordinator
from mainstem.coordination.share.state_persister_service import ShareStatePersister
from mainstem.model.clock import Clock
from mainstem.model.ids import NodeId
from mainstem.node.clustering.group_forwarding import ForwardingGroups
from mainstem.node.clustering.membership import ClusterNode
from mainstem.node.clustering.tasks import writer_of


def share_service(
    cluster: ClusterNode | None,
    members: ShareGroupCoordinator,
    topics: TopicsAdmin,
    streams: Streams,
    clock: Clock,
) -> ShareService:
    """The share groups as protocols see them."""
    store = members if cluster is None else _cluster_store(cluster, members)
    partitions = SharePartitions(streams, store, members.configs, clock)
    return ShareService(streams, members, partitions, ShareOffsets(members, topics, streams))


def _cluster_store(cluster: ClusterNode, members: ShareGroupCoordinator) -> ShareStore:
    catalogue = cluster.service.catalogue

    def coordinator_of(group_id: str) -> NodeId:
        if catalogue.topic(OFFSETS_TOPIC) is None:
            return cluster.node
        return writer_of(catalogue, OFFSETS_TOPIC, members.partition_of(group_id))

    store = ShareStatePersister(cluster.node, cluster.peers, members, coordinator_of)
    cluster.peers.serve(PeerService.SHARES, store.serve)
    return store


def all_groups(
    cluster: ClusterNode | None, groups: GroupCoordinator, shares: ShareService
) -> AllGroups:
    """The groups of all nodes, for administrators at any node."""
    here = LocalGroups(groups, shares, groups.share_groups.configs.session_timeout_ms)
    if cluster is None:
        return here
    made = ForwardingGroups(here, cluster.node, cluster.peers, _Coordinators(cluster, groups))
    cluster.peers.serve(PeerService.GROUPS, made.serve)
    return made


class _Coordinators:
    """Groups are coordinated where their partition of the internal topic is written."""

    def __init__(self, cluster: ClusterNode, groups: GroupCoordinator) -> None:
        self._catalogue = cluster.service.catalogue
        self._shards = groups.shards
        self.partition_of = groups.coordinator_partition

    def check_here(self, partition: int) -> None:
        self._shards.in_partition(partition)

    def by_node(self) -> Mapping[NodeId, Sequence[int]]:
        found: dict[NodeId, list[int]] = {}
        topic = self._catalogue.topic(OFFSETS_TOPIC)
        for stream in () if topic is None else topic.streams:
            found.setdefault(stream.writer, []).append(stream.id.partition)
        return found
