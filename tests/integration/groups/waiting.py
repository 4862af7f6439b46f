"""Waiting for what a group comes to."""

import time
from collections.abc import Callable


def eventually(claim: Callable[[], object], *, patience_s: float) -> None:
    """Returns when the claim holds; fails when it does not in time."""
    deadline = time.monotonic() + patience_s
    while not claim():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.02)
