"""Waiting for what servers come to in their own time."""

import time
from collections.abc import Callable
from typing import Any


def eventually(question: Callable[[], Any], *, within_s: float = 30.0) -> Any:
    """The first true answer to a question that is asked until it comes."""
    until = time.monotonic() + within_s
    while not (answer := question()):
        assert time.monotonic() < until, "it does not come true"
        time.sleep(0.02)
    return answer
