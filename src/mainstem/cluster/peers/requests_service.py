"""Requests to other nodes: the interface that packages need of ``Peers``, and retries."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.model.errors import MainstemError
from mainstem.model.ids import NodeId

PAUSE_S: Final = 0.05
Found = TypeVar("Found")


class PeerRequester(Protocol):
    """``Peers`` on a network, a simulated one in simulations."""

    def ask(
        self, node: NodeId, service: PeerService, chunks: Sequence[Chunk], *, timeout_s: float
    ) -> Awaitable[memoryview]:
        """A node's answer."""
        ...


async def retry_refused(
    attempt: Callable[[], Awaitable[Found]],
    may_repeat: Callable[[MainstemError], bool],
    *,
    timeout_s: float,
) -> Found:
    """The result of an attempt, repeated for a while after refusals that allow it.

    Raises:
        MainstemError: the last refusal, or the first one that is not retriable.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + timeout_s
    while True:
        try:
            return await attempt()
        except MainstemError as error:
            if not may_repeat(error) or loop.time() > give_up:
                raise
        await asyncio.sleep(PAUSE_S)
