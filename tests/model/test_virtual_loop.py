"""Virtual time, and processes that are paused in it."""

import asyncio
from contextvars import copy_context

from mainstem.testing.raft_cluster import SimulatedLoop
from mainstem.testing.virtual_loop import PROCESS


def test_timers_of_one_moment_run_in_the_order_in_which_they_were_set() -> None:
    async def story() -> list[int]:
        loop, seen = asyncio.get_running_loop(), list[int]()
        for number in range(20):
            loop.call_at(5.0, seen.append, number)
        await asyncio.sleep(6)
        return seen

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        assert runner.run(story()) == list(range(20))


def test_a_paused_process_misses_nothing_and_is_late() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        seen: list[tuple[str, float]] = []
        paused = copy_context()
        paused.run(PROCESS.set, 1)

        async def count(name: str) -> None:
            for _ in range(3):
                await asyncio.sleep(1)
                seen.append((name, loop.time()))

        tasks = [loop.create_task(count("a"), context=paused), loop.create_task(count("b"))]
        loop.call_later(1.5, loop.pause, 1)
        loop.call_later(4.5, loop.resume, 1)
        await asyncio.gather(*tasks)
        assert [time for name, time in seen if name == "b"] == [1, 2, 3]
        assert [time for name, time in seen if name == "a"] == [1, 4.5, 5.5]

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(story())


def test_jobs_wait_while_the_disk_of_their_process_stalls() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)

        async def job() -> float:
            await loop.run_in_executor(None, lambda: None)
            return round(loop.time(), 2)

        stalled = copy_context()
        stalled.run(PROCESS.set, 1)
        loop.stall(1, 30)
        there, here = loop.create_task(job(), context=stalled), loop.create_task(job())
        assert await here == 0.0
        assert await there == 30.0

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(story())
