"""Mainstem: one log, written and read by every protocol.

async with mainstem.connect("127.0.0.1:2925") as queues: ...
with mainstem.connect_blocking("127.0.0.1:2925") as queues: ...
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainstem.model.release import RELEASE

if TYPE_CHECKING:
    from mainstem.client.blocking_queues import BlockingQueues
    from mainstem.client.native.connection import NativeSettings
    from mainstem.client.queues import Queues

__version__ = RELEASE

NATIVE_ADDRESS = "127.0.0.1:2925"


def connect(
    addresses: str | Sequence[str] = NATIVE_ADDRESS, settings: "NativeSettings | None" = None
) -> "Queues":
    """A client for queues, to be used with ``async with``."""
    from mainstem.client.queues import Queues  # noqa: PLC0415 - a node does not need it

    return Queues(addresses, settings)


def connect_blocking(
    addresses: str | Sequence[str] = NATIVE_ADDRESS, settings: "NativeSettings | None" = None
) -> "BlockingQueues":
    """The same without asyncio, to be used with ``with``."""
    from mainstem.client.blocking_queues import BlockingQueues  # noqa: PLC0415

    return BlockingQueues(addresses, settings)
