"""Three nodes of which two have no space left: commands are refused, and nobody ends."""

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.kit.waiting import wait_until

from mainstem.testing.local_cluster import LocalCluster
from mainstem.testing.local_node import LocalNode

pytestmark = [pytest.mark.needs("root"), pytest.mark.timeout(240)]

NUMBERS = (1, 2, 3)
RETRIABLE = {503, 504, 507}


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    made = LocalCluster(len(NUMBERS))
    mounted = list[Path]()
    try:
        for number in NUMBERS:
            folder = made.folder / f"node-{number}"
            folder.mkdir(exist_ok=True)
            small = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
            subprocess.run(small, check=True)
            mounted.append(folder)
        with made:
            made.wait_for_three_voters()
            yield made
    finally:
        for folder in mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        made.close()


def status(node: LocalNode, method: str, path: str, body: Any) -> int:
    request = urllib.request.Request(
        f"http://{node.http}{path}", json.dumps(body).encode(), method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def is_stored(node: LocalNode, partition: int) -> bool:
    message = {"value": "x", "partition": partition}
    return status(node, "POST", "/v1/topics/kept/messages", message) == 200


def test_two_full_disks_of_three_refuse_until_there_is_space(cluster: LocalCluster) -> None:
    nodes = [cluster.nodes[number] for number in NUMBERS]
    topic = {"partitions": 3, "replication_factor": 3}
    assert status(nodes[0], "PUT", "/v1/topics/kept", topic) == 201
    hogs = [node.data_dir / "hog" for node in nodes[1:]]
    for hog in hogs:
        fill = ["dd", "if=/dev/zero", f"of={hog}", "bs=4096"]
        subprocess.run(fill, check=False, capture_output=True)
        assert os.statvfs(hog.parent).f_bavail == 0
    # What fits into the last block of a log is still recorded; then there is no majority.
    answers = (
        status(nodes[0], "PUT", f"/v1/topics/late{number}", {"partitions": 1})
        for number in range(400)
    )
    refused = next(answer for answer in answers if answer != 201)
    assert refused in RETRIABLE
    assert all(node.is_running for node in nodes)
    for hog in hogs:
        hog.unlink()
    wait_until(lambda: status(nodes[0], "PUT", "/v1/topics/after", {"partitions": 1}) in {200, 201})
    for partition in range(3):
        wait_until(partial(is_stored, nodes[0], partition))
    assert all(node.is_running for node in nodes)
