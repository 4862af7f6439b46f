"""Checks disconnected nodes: has the process ended, or only a connection?

A machine whose process has ended refuses connections; one that does not answer, or is behind a
failed network, leaves the question open. ``on_gone`` is called only when no connection with a node
is open and its machine refuses a new one. The result is a hint: safety does not depend on it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from mainstem.model.ids import NodeId

# When a disconnected node is checked: a process that ends does not close all sockets at once.
CHECK_PAUSES_S: Final = (0.002, 0.01, 0.03, 0.1, 0.3)
# For how long a node that was found gone is listed.
LOST_KNOWN_S: Final = 2.0
_log = logging.getLogger(__name__)


async def refuses(address: tuple[str, int], timeout_s: float) -> bool:
    """Whether a machine reports that no process listens there."""
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(*address)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False


class PeerWatcher:
    """Finds out whether the process of a disconnected node has ended.

    Args:
        is_refused: whether a node's machine refuses connections.
        is_receiving: whether any connection with a node is open.
    """

    def __init__(
        self,
        is_refused: Callable[[NodeId], Awaitable[bool]],
        is_receiving: Callable[[NodeId], bool],
    ) -> None:
        self._is_refused = is_refused
        self._is_receiving = is_receiving
        self._checks: dict[NodeId, asyncio.Task[None]] = {}
        self._lost: set[NodeId] = set()
        self._closed = False
        self.on_gone: list[Callable[[NodeId], None]] = []

    def missing(self) -> list[NodeId]:
        """Nodes that have just disconnected: being checked, or found to have ended."""
        return [node for node in {*self._checks, *self._lost} if not self._is_receiving(node)]

    def disconnected(self, node: NodeId) -> None:
        """A connection with a node has ended."""
        if self.on_gone and not self._closed and node not in self._checks:
            check = asyncio.get_running_loop().create_task(self._check(node))
            self._checks[node] = check
            check.add_done_callback(lambda _: self._checks.pop(node, None))

    async def close(self) -> None:
        """Stop all checks."""
        self._closed = True
        checks = list(self._checks.values())
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)

    async def _check(self, node: NodeId) -> None:
        for pause_s in CHECK_PAUSES_S:
            await asyncio.sleep(pause_s)
            if (
                self._is_receiving(node)
                or not await self._is_refused(node)
                or self._is_receiving(node)
            ):
                continue
            if node not in self._lost:
                _log.info("the process of node %d has ended", node)
            self._lost.add(node)
            asyncio.get_running_loop().call_later(LOST_KNOWN_S, self._lost.discard, node)
            for notify in self.on_gone:
                notify(node)
            return
