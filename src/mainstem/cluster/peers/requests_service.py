"""Requests to other nodes: what a package needs of ``Peers``, and retries while they move."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.model.errors import MainstemError
from mainstem.model.ids import NodeId

PAUSE_S: Final = 0.05
Found = TypeVar("Found")


class PeerRequester(Protocol):
    """``Peers`` on a network, anything else in simulations."""

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
    """What an attempt returns, tried again for a while after refusals that allow it.

    Raises:
        MainstemError: the last refusal, or the first that allows no repetition.
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
