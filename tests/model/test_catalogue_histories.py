"""Administrators of a catalogue that three nodes keep: what they are answered is linearizable.

Real Raft drivers and files as in ``tests/unit/placement``, without streams, so that a run costs
little. Answers are lost, and nodes are cut off; senders try again under the same id, and
administrators send the same command again under another one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest
from tests.kit.catalogue import FOUNDERS, CatalogueGroup, driver_of, found, new_catalogue_group
from tests.kit.loop import virtual_time

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.features import OWN_LEVELS
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node as Member
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import RegisterNode
from mainstem.placement.state.catalogue import Catalogue
from mainstem.testing.simulation.cluster.admins import SimAdmin, check_command_histories

if TYPE_CHECKING:
    from mainstem.testing.simulation.cluster.node import SimNode
    from mainstem.testing.simulation.linearizability import TimedCommand

pytestmark = virtual_time

T = TypeVar("T")

STORY_S = 150.0
ADMINS = 4
LOST = 0.3
PATIENCE_S = 1.0


class LossyCatalogueGroup(CatalogueGroup):
    """Loses answers of the leader, after it has acted, and lets their senders wait for nothing."""

    rng = Random(0)
    lost = 0

    async def ask(self, asker: NodeId, to: NodeId, data: bytes, timeout_s: float) -> bytes:
        answer = await super().ask(asker, to, data, timeout_s)
        if (to, asker) in self.cut or self.rng.random() < LOST:
            self.lost += 1
            await asyncio.sleep(self.rng.random() * timeout_s)
            raise Unavailable(ErrorCode.TIMED_OUT, "the answer got lost")
        return answer


class Endpoint:
    """One node as administrators use it."""

    def __init__(self, catalogue_group: CatalogueGroup, node: NodeId) -> None:
        self._catalogue_group = catalogue_group
        self._node = node

    @property
    def catalogue(self) -> Catalogue:
        return self._catalogue_group.services[self._node].catalogue

    async def serve(self, request: Callable[[], Awaitable[T]]) -> T:
        """The answer; when it comes too late the request goes on nevertheless."""
        task = asyncio.ensure_future(request())
        done, _ = await asyncio.wait({task}, timeout=PATIENCE_S)
        if not done:
            task.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise TimeoutError
        return task.result()

    async def submit(self, command: Command[T]) -> T:
        return await self._catalogue_group.services[self._node].submit(command)

    async def look(self, view: Callable[[Catalogue], T]) -> T:
        await driver_of(self._catalogue_group.nodes[self._node]).read_barrier(PATIENCE_S)
        return view(self.catalogue)


async def cut_off_now_and_then(catalogue_group: LossyCatalogueGroup, until_s: float) -> None:
    """Isolate one node after the other, mostly the leader, for some time."""
    loop, rng = asyncio.get_running_loop(), catalogue_group.rng
    while loop.time() < until_s:
        await asyncio.sleep(rng.random() * 6)
        leader = catalogue_group.leader()
        some = rng.choice(list(catalogue_group.nodes.values()))
        catalogue_group.isolate(leader if leader is not None and rng.random() < 0.7 else some)
        await asyncio.sleep(rng.random() * 3)
        catalogue_group.heal()


@pytest.mark.parametrize("seed", range(1, 5))
async def test_what_administrators_are_answered_can_have_happened(
    seed: int, tmp_path: Path
) -> None:
    async with new_catalogue_group(tmp_path, kind=LossyCatalogueGroup) as catalogue_group:
        assert isinstance(catalogue_group, LossyCatalogueGroup)
        catalogue_group.rng = Random(seed)
        service = await found(catalogue_group)
        for node in FOUNDERS[1:]:
            member = Member(node, "127.0.0.1", 9092)
            await service.submit(RegisterNode(member, 1, f"d{node}", OWN_LEVELS))
        endpoints = cast("list[SimNode]", [Endpoint(catalogue_group, node) for node in FOUNDERS])
        history: dict[str, list[TimedCommand[Any]]] = {}
        admins = [
            SimAdmin(catalogue_group.rng, lambda: endpoints, lambda _: None, history)
            for _ in range(ADMINS)
        ]
        acting = [asyncio.ensure_future(admin.change_until_done()) for admin in admins]
        await cut_off_now_and_then(catalogue_group, STORY_S)
        for admin in admins:
            admin.is_done = True
        await asyncio.gather(*acting)
        for subject in list(history):
            await admins[0].look(endpoints[0], subject)

        assert check_command_histories(history) == 0
        assert not any(each.catalogue.ignored for each in catalogue_group.services.values())
        assert catalogue_group.lost > 20
        assert sum(admin.known for admin in admins) > 50
        assert sum(admin.repeated for admin in admins) > 20
