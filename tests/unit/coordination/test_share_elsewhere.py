"""States of share partitions on their way to the node that coordinates the group."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from mainstem.cluster.peers.frames import Chunk, Service
from mainstem.coordination.partitions import OFFSETS_TOPIC
from mainstem.coordination.runtime import GroupsRuntime
from mainstem.coordination.settings import GroupSettings
from mainstem.coordination.shards_runtime import InternalTopic
from mainstem.coordination.share_elsewhere_runtime import ClusterShareStore
from mainstem.coordination.share_partition import SavedRun, SavedShare
from mainstem.coordination.share_records import ShareState
from mainstem.coordination.share_requests import ShareHeartbeat
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import NO_NODE, NodeId
from mainstem.testing.memory_stream import MemoryStream
from mainstem.testing.topic_list import TopicList
from mainstem.testing.virtual_loop import VirtualLoop

ONE, TWO = NodeId(1), NodeId(2)
STATE = ShareState(SavedShare(3, (SavedRun(2, 0, 1),)), 0, 7, 1)


class LoopClock:
    def wall_ms(self) -> int:
        return int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class Village:
    """Two nodes; node 1 coordinates the group, node 2 writes the partition."""

    def __init__(self) -> None:
        self.topics = TopicList({"t": 1})
        self.place = (self.topics.id_of("t"), 0)
        self.leads = ONE
        self.refusals: list[MainstemError] = []
        self.asked = 0
        self.groups = {number: self._groups() for number in (ONE, TWO)}
        self.stores = {
            number: ClusterShareStore(number, self, groups.sharers, lambda _: self.leads)
            for number, groups in self.groups.items()
        }

    def _groups(self) -> GroupsRuntime:
        stream = MemoryStream()

        async def ensure() -> None:
            self.topics.counts[OFFSETS_TOPIC] = 1

        topic = InternalTopic(
            ensure, lambda _: stream, lambda name: self.topics.counts.get(name, 0)
        )
        return GroupsRuntime(GroupSettings(), topic, self.topics, LoopClock())

    async def open(self) -> None:
        for groups in self.groups.values():
            groups.start()
        heartbeat = ShareHeartbeat(group_id="g", member_id="m", epoch=0, topics=("t",))
        await self.groups[ONE].sharers.heartbeat(heartbeat)

    async def ask(
        self, node: NodeId, service: Service, chunks: Sequence[Chunk], *, timeout_s: float
    ) -> memoryview:
        assert service is Service.SHARES
        self.asked += 1
        await asyncio.sleep(0.001)
        if self.refusals:
            raise self.refusals.pop(0)
        answer = await self.stores[node].serve(TWO, memoryview(b"".join(map(bytes, chunks))))
        return memoryview(b"".join(map(bytes, answer)))


def play(story: Callable[[Village], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        village = Village()
        await village.open()
        await story(village)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


@pytest.mark.parametrize("node", [ONE, TWO])
def test_a_state_is_stored_and_found_from_every_node(node: NodeId) -> None:
    async def story(village: Village) -> None:
        store = village.stores[node]
        assert await store.read("g", village.place, 7) is None
        await store.write("g", village.place, STATE)
        found = await store.read("g", village.place, 7)
        assert found is not None
        assert (found.share, found.leader_epoch) == (STATE.share, 7)
        assert bool(village.asked) is (node == TWO)

    play(story)


def test_a_coordinator_that_moves_is_followed() -> None:
    async def story(village: Village) -> None:
        village.leads = NO_NODE
        asyncio.get_running_loop().call_later(1.0, setattr, village, "leads", ONE)
        village.refusals = [Unavailable(ErrorCode.NOT_COORDINATOR, "not here")]
        await village.stores[TWO].write("g", village.place, STATE)
        assert village.groups[ONE].sharers.states("g")[village.place] == STATE

    play(story)


def test_without_a_coordinator_the_writer_gives_up_after_a_while() -> None:
    async def story(village: Village) -> None:
        village.leads = NO_NODE
        with pytest.raises(MainstemError) as refusal:
            await village.stores[TWO].write("g", village.place, STATE)
        assert refusal.value.code is ErrorCode.COORDINATOR_UNAVAILABLE

    play(story)


def test_what_the_coordinator_refuses_is_not_tried_again() -> None:
    async def story(village: Village) -> None:
        with pytest.raises(MainstemError) as refusal:
            await village.stores[ONE].write("other", village.place, STATE)
        assert refusal.value.code is ErrorCode.UNKNOWN_GROUP
        with pytest.raises(Corrupt):
            await village.stores[ONE].serve(TWO, memoryview(b"\xc1"))

    play(story)
