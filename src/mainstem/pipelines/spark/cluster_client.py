"""The client, for code that Spark calls: synchronous, and kept from task to task.

Spark's Python workers are plain functions that are called again and again in one process. Promises:
connections and what is known of the cluster are kept between calls, for the last few clusters; a
process that was forked never uses the connections of its parent.
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
    """One cluster and the event loop that its connections live in."""

    def __init__(self, servers: str, options: Mapping[str, str]) -> None:
        self._loop = asyncio.new_event_loop()
        settings = connection_settings(options, client_id=options.get("kafka.client.id", "spark"))
        self.cluster = Cluster(servers, settings)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Does something to its end."""
        return self._loop.run_until_complete(work)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous iterator, one by one."""
        try:
            while True:
                try:
                    # A coroutine, since that is what the loop runs.
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                self.run(close())

    def close(self) -> None:
        """Ends every connection."""
        self.run(self.cluster.close())
        self._loop.close()


_wires: dict[tuple[Any, ...], SparkClusterClient] = {}


def cached_client(servers: str, options: Mapping[str, str]) -> SparkClusterClient:
    """The wire of this process to a cluster; options have names in lower case.

    Raises:
        InvalidRequest: the security options make no sense.
    """
    chosen = tuple(
        sorted((k, v) for k, v in options.items() if k in OPTIONS or k == "kafka.client.id")
    )
    key = (os.getpid(), servers, chosen)
    wire = _wires.pop(key, None)
    if wire is None:
        wire = SparkClusterClient(servers, options)
    _wires[key] = wire  # the last one used is the last to go
    while len(_wires) > CACHED_CLIENTS_MAX:
        oldest = next(iter(_wires))
        forgotten = _wires.pop(oldest)
        if oldest[0] == os.getpid():
            forgotten.close()
    return wire


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)
