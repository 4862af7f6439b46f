"""Runs one conversation with a cluster to its end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from mainstem.client.admin import Admin

T = TypeVar("T")


def with_admin(bootstrap: str, timeout_s: float, action: Callable[["Admin"], Awaitable[T]]) -> T:
    """What ``action`` returns, given an administrator of the cluster."""

    async def converse() -> T:
        from mainstem.client.admin import Admin

        async with Admin(bootstrap, timeout_ms=round(timeout_s * 1000)) as admin:
            return await action(admin)

    return asyncio.run(converse())
