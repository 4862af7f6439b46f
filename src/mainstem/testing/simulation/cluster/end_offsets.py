"""A reader of end offsets in ``simulator``: every answer includes what was acknowledged."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from mainstem.broker.api.broker import check_fresh
from mainstem.model.errors import MainstemError
from mainstem.streams.service import StreamService
from mainstem.testing.simulation.cluster.clients import GuaranteeViolated, SimClients
from mainstem.testing.simulation.cluster.node import SimNode

INTERVAL_S: Final = 0.4


class SimEndOffsets:
    """Asks for the end of the stream, at the same node until it refuses, as clients do.

    Args:
        clients: the producers, which know what was acknowledged.
        writer: returns the writer of the stream.
    """

    def __init__(self, clients: SimClients, writer: Callable[[], SimNode | None]) -> None:
        self._clients = clients
        self._writer = writer
        self._asked: SimNode | None = None

    async def ask_until_done(self) -> None:
        """Ask repeatedly: the answer includes everything acknowledged before the request."""
        clients = self._clients
        while not clients.is_done:
            await asyncio.sleep(clients.rng.random() * INTERVAL_S)
            node = self._asked = self._asked or self._writer()
            if node is None or node.streams is None:
                self._asked = None
                continue
            least = clients.acked_until
            try:
                end = await node.serve(partial(_end_offset, node.streams))
            except (MainstemError, TimeoutError) as error:
                if isinstance(error, MainstemError) and not error.retriable:
                    raise GuaranteeViolated(f"the end is refused for good: {error}") from error
                self._asked = None
                continue
            if end < least:
                raise GuaranteeViolated(
                    f"node {node.id} answers that the stream ends at {end}, not at {least}"
                )


async def _end_offset(streams: StreamService) -> int:
    """What Kafka's ListOffsets answers."""
    stream = streams.partition("t", 0)
    check_fresh(stream)
    return stream.committed
