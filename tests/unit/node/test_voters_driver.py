"""How long the leader of the group waits for members that are silent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.cluster.raft.messages import ConfChange, ConfChangeType
from mainstem.cluster.raft.status import MemberStatus
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.node.clustering import voters_driver
from mainstem.node.clustering.voters_driver import UNREGISTERED_S, VotersDriver
from mainstem.placement.changes.commands import NodeRegistered, NodeUnregistered

REMOVE = ConfChangeType.ConfChangeRemoveNode


class Group:
    """A group that this node leads, its catalogue and its clock."""

    def __init__(self, voters: list[int], registered: list[int]) -> None:
        self.state = SimpleNamespace(is_leader=True)
        self.silent: set[int] = set()
        self.asked: list[ConfChange] = []
        self.now_s = 100.0
        self._voters = voters
        self._registered = registered

    @property
    def status(self) -> Any:
        members = [
            MemberStatus(NodeId(n), False, 9, None, n not in self.silent) for n in self._voters
        ]
        return SimpleNamespace(node_id=NodeId(1), members=members, committed=9)

    async def change_membership(self, change: ConfChange) -> int:
        self.asked.append(change)
        self._voters.remove(change.node_id)
        return 1

    def nodes(self) -> list[Any]:
        return [SimpleNamespace(node=known(number)) for number in self._registered]

    def monotonic(self) -> float:
        return self.now_s


def known(number: int) -> Node:
    return Node(NodeId(number), "127.0.0.1", 9092, machine=f"machine-{number}")


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
        await asyncio.sleep(0.002)


@asynccontextmanager
async def running(group: Group, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[VotersDriver]:
    monkeypatch.setattr(voters_driver, "PAUSE_S", 0.001)
    fake: Any = group
    driver = VotersDriver(fake, fake, fake)
    task = asyncio.get_running_loop().create_task(driver.run())
    yield driver
    task.cancel()


@pytest.mark.parametrize(("is_unregistered", "patience_s"), [(True, 3.0), (False, 30.0)])
async def test_who_was_unregistered_is_not_waited_for_as_a_stranger_is(
    monkeypatch: pytest.MonkeyPatch, *, is_unregistered: bool, patience_s: float
) -> None:
    group = Group([1, 2, 4], [1, 2])
    group.silent = {4}

    async with running(group, monkeypatch) as driver:
        if is_unregistered:
            driver.on_fact(NodeUnregistered(NodeId(4)))
        await turns()
        group.now_s += patience_s - 0.1
        await turns()
        assert group.asked == []
        group.now_s += 0.2
        await turns()
        assert group.asked[:1] == [ConfChange(REMOVE, NodeId(4))]


async def test_who_registers_again_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group([1, 2, 3], [1, 2])
    group.silent = {3}

    async with running(group, monkeypatch) as driver:
        driver.on_fact(NodeUnregistered(NodeId(3)))
        driver.on_fact(NodeRegistered(known(3), 2, "disk-3", 0))
        await turns()
        group.now_s += UNREGISTERED_S + 0.1
        await turns()
        assert group.asked == []


async def test_who_still_speaks_is_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group([1, 2, 3], [1, 2])

    async with running(group, monkeypatch) as driver:
        driver.on_fact(NodeUnregistered(NodeId(3)))
        for _ in range(10):
            group.now_s += 1.0
            await turns()
        assert group.asked == []
