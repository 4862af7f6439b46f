"""Ranges that readers wait for are copied as soon as somebody has them, not when a pause ends."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tests.kit.cluster import StreamCluster, StreamClusterNode
from tests.kit.waiting import eventually

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.streams.failover.driver import read_from
from mainstem.streams.replica import copy_driver


class Sources:
    """Whoever has ranges whole, out of reach until they are back."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.are_back = False
        self.asked = 0
        patch.setattr(copy_driver, "read_from", self._read)

    async def _read(self, *args: Any) -> Any:
        self.asked += 1
        if not self.are_back:
            raise Unavailable(ErrorCode.WRITER_UNAVAILABLE, "nobody can be reached")
        return await read_from(*args)


async def late_writer(cluster: StreamCluster) -> StreamClusterNode:
    """A node that writes the stream and does not have what was written while it was dead."""
    await cluster.create()
    await cluster.write(b"0")
    late = next(node for node in cluster.nodes.values() if node is not cluster.writer)
    await late.crash()
    await cluster.write(b"1")
    await cluster.fence(late)
    await late.start()
    await cluster.unfence(late)
    cluster.writer.streams.roll(cluster.stream.id)
    await eventually(lambda: late.id in cluster.stream.last.replicas)
    cluster.writer.streams.roll(cluster.stream.id, new_writer=late.id)
    await eventually(lambda: cluster.writer is late)
    await cluster.write(b"2")
    return late


def is_whole(cluster: StreamCluster, node: StreamClusterNode) -> bool:
    try:
        return cluster.values(node) == [b"0", b"1", b"2"]
    except Unavailable as error:
        if error.code is not ErrorCode.WRITER_UNAVAILABLE:
            raise
        return False


async def test_a_range_that_is_read_is_copied_as_soon_as_a_source_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_driver, "PAUSE_S_MIN", 60.0)
    sources = Sources(monkeypatch)

    async with StreamCluster(tmp_path) as cluster:
        late = await late_writer(cluster)
        assert not is_whole(cluster, late)
        sources.are_back = True
        await eventually(lambda: is_whole(cluster, late), within_s=5.0)


async def test_many_readers_do_not_make_it_ask_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_driver, "PAUSE_S_MIN", 60.0)
    sources = Sources(monkeypatch)

    async with StreamCluster(tmp_path) as cluster:
        late = await late_writer(cluster)
        before, began_s = sources.asked, time.monotonic()
        for _ in range(100):
            assert not is_whole(cluster, late)
            await asyncio.sleep(0.01)
        tries_max = 1 + (time.monotonic() - began_s) / copy_driver.WANTED_PAUSE_S
        assert 0 < sources.asked - before <= 2 * tries_max  # each time both other nodes
        sources.are_back = True
