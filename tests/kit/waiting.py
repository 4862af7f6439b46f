"""Waiting for what nothing announces: a condition is asked until it holds."""

import asyncio
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

PAUSE_S = 0.01


async def eventually(condition: Callable[[], object], *, within_s: float = 30.0) -> None:
    """Return once the condition holds; it may be a coroutine function."""
    async with asyncio.timeout(within_s):
        while True:
            answer = condition()
            if await answer if isawaitable(answer) else answer:
                return
            await asyncio.sleep(PAUSE_S)


def wait_until(condition: Callable[[], Any], what: str = "", *, within_s: float = 60.0) -> Any:
    """The first true answer, for tests without a loop."""
    deadline = time.monotonic() + within_s
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not in {within_s:.0f} s: {what or condition}"
        time.sleep(2 * PAUSE_S)
    return answer
