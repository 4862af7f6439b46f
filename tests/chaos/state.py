"""What every node of a cluster believes, for the message of a run that stands still.

Asked of each node by itself: who leads the catalogue, which nodes are there, who writes what under
which epoch and who is in sync; every range that is not where it is wanted; every group with its
coordinator, its members and their positions. Beside it the files that each node has of every
partition, which show how far its copy is. A node that ended by itself has said why: that is told
before all else.
"""

import json
import re
import urllib.request
from typing import Any

from confluent_kafka.admin import AdminClient

from mainstem.testing.local_cluster import LocalCluster, MemberNode

ASK_TIMEOUT_S = 3.0


def state_of(cluster: LocalCluster) -> str:
    """A text for people, one part for every node; never fails."""
    return "\n".join(_node(node) for node in cluster.nodes.values())


def check_all_run(cluster: LocalCluster) -> None:
    """Nobody but the faults ends a node: fail with the last words of one that ended by itself."""
    ended = [node for node in cluster.nodes.values() if not node.is_running]
    words = "\n".join(f"node {node.number} ended by itself:\n{_last_words(node)}" for node in ended)
    assert not ended, f"{words}\n{state_of(cluster)}\n{cluster.logs()}"


def _last_words(node: MemberNode) -> str:
    fatal = [line for line in node.log_text().splitlines() if '"critical"' in line]
    return "\n".join(fatal[-3:]) or node.log_tail()


def _node(node: MemberNode) -> str:
    if not node.is_running:
        return f"node {node.number} does not run"
    parts = [_told(read, node) for read in (_catalogue, _kafka_view, _groups, _files)]
    return "\n".join([f"node {node.number}, process {node.pid}", *parts])


def _told(read: Any, node: MemberNode) -> str:
    try:
        return str(read(node))
    except Exception as error:  # noqa: BLE001 - what cannot be had is said, and the rest is told
        return f"  {read.__name__}: {error!r}"


def _asked(node: MemberNode, path: str) -> Any:
    with urllib.request.urlopen(f"http://{node.http}{path}", timeout=ASK_TIMEOUT_S) as answer:
        return json.loads(answer.read())


def _catalogue(node: MemberNode) -> str:
    whole = _asked(node, "/v1/cluster")
    nodes = _asked(node, "/v1/cluster/nodes")
    lines = [f"  leader {whole['leader']}, term {whole.get('term')}, voters {whole['voters']}"]
    lines += [
        f"  node {one['node']}: {one['status']}, seen {one['seen']}, writes {one['writes']}, "
        f"holds {one['ranges']}, copies {one['copying']}"
        for one in nodes
    ]
    ranges = _asked(node, "/v1/cluster/ranges")
    lines += [
        f"  {one['topic']}-{one['partition']}: range {one['index']}.g{one['generation']} "
        f"[{one['start']}, {one['end']}) is {one['state']}, replicas {one['replicas']}, "
        f"whole on {one['done']}, copied to {one['replicating']}"
        for one in ranges
        if one["state"] in ("incomplete", "moving") or one["replicating"]
    ]
    newest = {(one["topic"], one["partition"]): one for one in ranges}
    for (topic, partition), one in sorted(newest.items()):
        lines.append(
            f"  {topic}-{partition}: range {one['index']} from {one['start']}, {one['state']}, "
            f"writer {one['writer']}, epoch {one['epoch']}, replicas {one['replicas']}, "
            f"up {one['done']}, acks {one['acks']}"
        )
    return "\n".join(lines)


def _kafka_view(node: MemberNode) -> str:
    """Leader and in-sync replicas, as a client that asks this node is told."""
    found = AdminClient({"bootstrap.servers": node.kafka, "log_level": 0}).list_topics(
        timeout=ASK_TIMEOUT_S
    )
    return "\n".join(
        f"  {name}-{number}: leader {part.leader}, in sync {part.isrs}, error {part.error}"
        for name, topic in sorted(found.topics.items())
        if not name.startswith("__")
        for number, part in sorted(topic.partitions.items())
    )


def _groups(node: MemberNode) -> str:
    """Every group, as this node answers: state, coordinator, members, positions."""
    admin = AdminClient({"bootstrap.servers": node.kafka, "log_level": 0})
    listed = admin.list_consumer_groups(request_timeout=ASK_TIMEOUT_S).result()
    lines = [f"  groups cannot be listed: {error}" for error in listed.errors]
    names = [one.group_id for one in listed.valid]
    asked = admin.describe_consumer_groups(names, request_timeout=ASK_TIMEOUT_S) if names else {}
    for name, future in asked.items():
        lines.append(f"  {name}: coordinated by {future.result().coordinator}")
        lines.append(f"    {json.dumps(_asked(node, f'/v1/groups/{name}'))}")
    return "\n".join(lines)


def _files(node: MemberNode) -> str:
    """The last file of every partition and its size: how far this copy is."""
    last: dict[str, tuple[tuple[int, str], str]] = {}
    for file in node.data_dir.rglob("*.log"):
        found = re.fullmatch(r"range-(\d+)\..*", file.parent.name)
        if found is None or "__" in file.parts[-4]:
            continue
        place = (int(found.group(1)), file.name)
        told = f"  {file.relative_to(node.data_dir)}: {file.stat().st_size} bytes"
        partition = str(file.parent.parent)
        last[partition] = max(last.get(partition, (place, told)), (place, told))
    return "\n".join(told for _, told in sorted(last.values(), key=lambda one: one[1]))
