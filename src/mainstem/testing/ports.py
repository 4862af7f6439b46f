"""Ports for servers that need the same port after a restart, or need to know it beforehand.

Guarantees: a port is outside the range of ephemeral ports, so that no client gets it while its
server is down; it is free when it is returned, and not returned again for thousands of others;
parallel test processes use different parts of the range.
"""

import itertools
import os
import random
import socket
from typing import Final

LOWEST: Final = 10_000
PART_PORTS: Final = 5_000
PARTS: Final = 4  # up to 30,000; ephemeral ports start at 32,768

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_first = LOWEST + _worker % PARTS * PART_PORTS
# Processes without a worker number start at a random port of the part.
_places = itertools.count(random.randrange(PART_PORTS))  # noqa: S311


def free_ports(count: int) -> list[int]:
    """Ports that are free at this moment."""
    return [free_port() for _ in range(count)]


def free_port() -> int:
    """A port that is free at this moment."""
    for place in itertools.islice(_places, PART_PORTS):
        port = _first + place % PART_PORTS
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError(f"no port of {_first} to {_first + PART_PORTS - 1} is free")
