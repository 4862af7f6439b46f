"""A node whose disk cannot be read for a while answers so and goes on; nothing fails unheard."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from tests.kit.cluster import StreamCluster, StreamClusterNode
from tests.kit.loop import virtual_time
from tests.kit.waiting import eventually

from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault

pytestmark = virtual_time


def others(cluster: StreamCluster) -> list[StreamClusterNode]:
    return [node for node in cluster.nodes.values() if node is not cluster.writer]


async def test_a_new_writer_that_cannot_read_its_own_copy_tries_again(tmp_path: Path) -> None:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: unheard.append(what))
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        old = cluster.writer
        late, heir = others(cluster)
        cluster.network.cut(old.id, late.id)
        for number in range(3):
            await cluster.write(b"%d" % number)
        await heir.crash()
        await heir.start()  # what it holds is not remembered, it has to be read
        with FaultyFiles() as files:
            files.begin(heir.folder, FileFault.READS_FAIL)
            await old.crash()
            await cluster.fence(old)
            await eventually(lambda: files.refused[FileFault.READS_FAIL] > 0)
            assert cluster.writer is heir
            await asyncio.sleep(0.2)
        await cluster.write(b"3")
        assert cluster.values() == [b"0", b"1", b"2", b"3"]
        assert heir.fatal == []
    assert unheard == []


async def test_what_no_answer_explains_ends_the_take_over_and_the_node_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        old = cluster.writer
        failure = OSError(errno.EIO, os.strerror(errno.EIO))

        async def fence(_: Any) -> None:
            raise failure

        for node in others(cluster):
            assert node.streams._roles is not None
            monkeypatch.setattr(node.streams._roles.replicas, "fence", fence)
        await old.crash()
        await cluster.fence(old)
        await eventually(lambda: cluster.writer.fatal == [failure])
        cluster.writer.fatal.clear()
