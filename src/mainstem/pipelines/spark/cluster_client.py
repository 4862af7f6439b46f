"""The client for code that Spark calls: synchronous, and cached between tasks.

Spark's Python workers are plain functions that are called repeatedly in one process. Guarantees:
connections and metadata are kept between calls, for the last few clusters; a forked process never
uses the connections of its parent.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from typing import Any, Final, TypeVar

from mainstem.client.cluster import Cluster
from mainstem.pipelines.spark.security import OPTIONS, connection_settings

CACHED_CLIENTS_MAX: Final = 4

T = TypeVar("T")


class SparkClusterClient:
    """One cluster and the event loop of its connections."""

    def __init__(self, servers: str, options: Mapping[str, str]) -> None:
        self._loop = asyncio.new_event_loop()
        settings = connection_settings(options, client_id=options.get("kafka.client.id", "spark"))
        self.cluster = Cluster(servers, settings)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine to completion."""
        return self._loop.run_until_complete(work)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous iterator, one by one."""
        try:
            while True:
                try:
                    # A coroutine, because the loop does not run awaitables.
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                self.run(close())

    def close(self) -> None:
        """Closes all connections."""
        self.run(self.cluster.close())
        self._loop.close()


_wires: dict[tuple[Any, ...], SparkClusterClient] = {}


def cached_client(servers: str, options: Mapping[str, str]) -> SparkClusterClient:
    """The client of this process for a cluster; options have names in lower case.

    Raises:
        InvalidRequest: the security options are invalid.
    """
    chosen = tuple(
        sorted((k, v) for k, v in options.items() if k in OPTIONS or k == "kafka.client.id")
    )
    key = (os.getpid(), servers, chosen)
    wire = _wires.pop(key, None)
    if wire is None:
        wire = SparkClusterClient(servers, options)
    _wires[key] = wire  # the most recently used one is removed last
    while len(_wires) > CACHED_CLIENTS_MAX:
        oldest = next(iter(_wires))
        forgotten = _wires.pop(oldest)
        if oldest[0] == os.getpid():
            forgotten.close()
    return wire


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)
