"""Virtual time, and processes that are paused in it."""

import asyncio
from contextvars import copy_context

from tests.kit.loop import virtual_time

from mainstem.testing.simulation.raft.group import SimulatedLoop
from mainstem.testing.simulation.virtual_loop import PROCESS

pytestmark = virtual_time


async def test_timers_of_one_moment_run_in_the_order_in_which_they_were_set() -> None:
    loop, seen = asyncio.get_running_loop(), list[int]()
    for number in range(20):
        loop.call_at(5.0, seen.append, number)
    await asyncio.sleep(6)
    assert seen == list(range(20))


async def test_a_paused_process_misses_nothing_and_is_late() -> None:
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


async def test_jobs_wait_while_the_disk_of_their_process_stalls() -> None:
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


async def test_jobs_that_wait_for_a_stalled_disk_are_done_when_the_stall_is_ended() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    done: list[tuple[int, float]] = []

    async def job(number: int) -> None:
        await loop.run_in_executor(None, lambda: done.append((number, round(loop.time(), 2))))

    stalled = copy_context()
    stalled.run(PROCESS.set, 1)
    loop.stall(1, 30)
    jobs = [loop.create_task(job(number), context=stalled) for number in range(3)]
    loop.call_later(10, loop.end_stalls)
    await asyncio.gather(*jobs)
    await asyncio.sleep(60)
    assert done == [(0, 10.0), (1, 10.0), (2, 10.0)]
