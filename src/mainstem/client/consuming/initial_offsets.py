"""Finds the offsets to start at: the committed ones, or those of the reset policy."""

from collections.abc import Iterable

from mainstem.client.cluster import Cluster
from mainstem.client.consuming.committed_offsets import fetch_committed
from mainstem.client.consuming.fetch_buffer import FetchBuffer
from mainstem.client.consuming.offset_query import list_offsets
from mainstem.client.settings import ConsumerSettings
from mainstem.model.errors import ErrorCode, InvalidRequest


async def locate(
    cluster: Cluster, feeds: Iterable[FetchBuffer], group: str | None, settings: ConsumerSettings
) -> None:
    """Sets the position of every partition without one.

    Raises:
        InvalidRequest: no offset is committed, and the reset policy is ``none``.
        MainstemError: the cluster does not respond in time.
    """
    unpositioned = [feed for feed in feeds if feed.position is None]
    if not unpositioned:
        return
    new = [feed.partition for feed in unpositioned if not feed.is_out_of_range]
    if group is not None and new:
        committed = await fetch_committed(
            cluster,
            group,
            new,
            stable=settings.isolation == "read_committed",
            timeout_ms=settings.api_timeout_ms,
        )
        for feed in unpositioned:
            # The caller may have sought meanwhile, which takes precedence.
            if feed.position is None and not feed.is_out_of_range and feed.partition in committed:
                feed.move(committed[feed.partition].offset)
    rest = {feed.partition: feed.reset_to for feed in unpositioned if feed.position is None}
    wanted = {partition: reset for partition, reset in rest.items() if reset is not None}
    for partition in rest.keys() - wanted.keys():
        raise InvalidRequest(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            "no offset is committed",
            subject=str(partition),
            remedy="seek, or choose a reset policy",
        )
    found = await list_offsets(
        cluster,
        wanted,
        read_committed=settings.isolation == "read_committed",
        timeout_ms=settings.api_timeout_ms,
    )
    for feed in unpositioned:
        if feed.position is None and feed.partition in found:
            feed.move(found[feed.partition].offset)
