"""Share groups of a node, alone or among others: who stores what becomes of records."""

from mainstem.broker.admin import TopicsAdmin
from mainstem.broker.api import Streams
from mainstem.broker.share_offsets_service import ShareOffsets
from mainstem.broker.share_partition_service import SharePartitions, ShareStore
from mainstem.broker.share_service import ShareService
from mainstem.cluster.peers.frames import Service
from mainstem.coordination.partitions import OFFSETS_TOPIC
from mainstem.coordination.share_elsewhere_runtime import ClusterShareStore
from mainstem.coordination.share_members_runtime import ShareMembersRuntime
from mainstem.model.clock import Clock
from mainstem.model.ids import NodeId
from mainstem.node.cluster import ClusterNode
from mainstem.node.duties import writer_of


def share_service(
    cluster: ClusterNode | None,
    members: ShareMembersRuntime,
    topics: TopicsAdmin,
    streams: Streams,
    clock: Clock,
) -> ShareService:
    """The share groups as protocols see them."""
    store = members if cluster is None else _cluster_store(cluster, members)
    partitions = SharePartitions(streams, store, members.configs, clock)
    return ShareService(streams, members, partitions, ShareOffsets(members, topics, streams))


def _cluster_store(cluster: ClusterNode, members: ShareMembersRuntime) -> ShareStore:
    catalogue = cluster.service.catalogue

    def coordinator_of(group_id: str) -> NodeId:
        if catalogue.topic(OFFSETS_TOPIC) is None:
            return cluster.node
        return writer_of(catalogue, OFFSETS_TOPIC, members.partition_of(group_id))

    store = ClusterShareStore(cluster.node, cluster.peers, members, coordinator_of)
    cluster.peers.serve(Service.SHARES, store.serve)
    return store
