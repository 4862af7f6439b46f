"""Records that rot on one of three disks: found, never served, copied anew from the others."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.integration.cluster.conftest import QUICK
from tests.integration.cluster.test_fail_over import PARTITIONS, Writer, everything

from mainstem.testing.local_cluster import LocalCluster, MemberNode

ROLLS = {"internal.segment.bytes": "100000"}
RECORDS = 6_000


def flip(path: Path) -> None:
    """One bit in the middle of the records."""
    size = len(path.read_bytes().rstrip(b"\0"))
    with path.open("r+b") as file:
        file.seek(size // 2)
        [byte] = file.read(1)
        file.seek(size // 2)
        file.write(bytes([byte ^ 1]))


def cut(path: Path) -> None:
    """The second half is gone."""
    size = len(path.read_bytes().rstrip(b"\0"))
    with path.open("r+b") as file:
        file.truncate(size // 2)


def misname(path: Path) -> None:
    """One bit of what says whose records they are: the files cannot even be opened."""
    flip(path.with_name("range.header"))


def files_of(node: MemberNode, topic: str) -> dict[str, bytes]:
    """What a node has of a topic, without what is only reserved."""
    return {
        f"{path.parent.parent.name}/{path.name}": path.read_bytes().rstrip(b"\0")
        for path in sorted(node.data_dir.glob(f"topics/{topic}~*/partition-*/range-*/*.log"))
    }


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Nodes that look through their files all the time: not every damage meets a reader."""
    with LocalCluster(arguments=(*QUICK, "--set", "log.scrub_interval_ms=2000")) as own:
        own.wait_for_three_voters()
        yield own


@pytest.mark.parametrize("damage", [flip, cut, misname])
def test_a_damaged_copy_is_found_and_made_anew(
    cluster: LocalCluster, damage: Callable[[Path], None]
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic("rotten", PARTITIONS, 3, config=ROLLS)
    admin.create_topics([new])["rotten"].result(20)
    writer = Writer(cluster, "rotten", padded_to=100)
    for _ in range(5):
        writer.write(RECORDS // 6)
        writer.settle()
    victim = cluster.nodes[2]
    victim.kill9()
    # The others seal what it holds and go on without it.
    writer.write(RECORDS - writer.sent)
    writer.settle()
    logs = sorted(victim.data_dir.glob("topics/rotten~*/partition-*/range-*/*.log"))
    assert len(logs) > PARTITIONS, "there must be several segments"
    for path in {logs[0], logs[-1]}:
        damage(path)
    victim.start()
    # Its partitions come back to it, so readers would see what it has.
    until_led_by(admin, "rotten", 2)
    seen = everything(cluster.bootstrap, "rotten")
    assert sorted(seen) == list(range(RECORDS))
    sound = files_of(cluster.nodes[1], "rotten")
    give_up = time.monotonic() + 60
    while True:
        held = files_of(victim, "rotten")
        differing = [n for n, data in sound.items() if n in held and held[n] != data]
        if not differing or time.monotonic() > give_up:
            break
        time.sleep(0.5)
    assert not differing, victim.log_tail()


def until_led_by(admin: AdminClient, topic: str, node: int) -> None:
    give_up = time.monotonic() + 60
    while True:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        if any(part.leader == node for part in found.values()):
            return
        assert time.monotonic() < give_up, "no partition came back"
        time.sleep(0.5)
