"""Ports for servers that must have the same one again after a restart, or know it beforehand.

Promises: a port lies outside the range from which the system takes those of outgoing connections,
so that no client gets it while its server is down; it is free when it is given, and not given again
for thousands of others; processes that test side by side take theirs from different parts.
"""

import itertools
import os
import random
import socket
from typing import Final

LOWEST: Final = 10_000
PART_PORTS: Final = 5_000
PARTS: Final = 4  # up to 30,000; outgoing connections have theirs from 32,768 on

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_first = LOWEST + _worker % PARTS * PART_PORTS
# Processes without a number of their own begin anywhere in the part.
_places = itertools.count(random.randrange(PART_PORTS))  # noqa: S311


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at this moment."""
    return [free_port() for _ in range(count)]


def free_port() -> int:
    """A port that nobody has at this moment."""
    for place in itertools.islice(_places, PART_PORTS):
        port = _first + place % PART_PORTS
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError(f"no port of {_first} to {_first + PART_PORTS - 1} is free")
