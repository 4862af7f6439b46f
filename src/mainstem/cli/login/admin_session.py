"""Runs one action against a cluster, from connect to close."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from mainstem.cli.login.access import ConnectionOptions

if TYPE_CHECKING:
    from mainstem.client.admin import Admin

T = TypeVar("T")


def with_admin(
    bootstrap: ConnectionOptions, timeout_s: float, action: Callable[["Admin"], Awaitable[T]]
) -> T:
    """Calls ``action`` with an admin client and returns its result."""

    async def converse() -> T:
        from mainstem.client.admin import Admin

        async with bootstrap.cluster(timeout_s) as cluster:
            return await action(Admin(cluster, timeout_ms=round(timeout_s * 1000)))

    return asyncio.run(converse())
