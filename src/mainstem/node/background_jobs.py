"""Background jobs of a node: upkeep of its files, and monitoring of its disk."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING

from mainstem.model.errors import Unavailable
from mainstem.streams.maintenance.compaction_driver import CompactionDriver
from mainstem.streams.maintenance.garbage_driver import GarbageDriver
from mainstem.streams.maintenance.merge_driver import MergeDriver
from mainstem.streams.maintenance.retention_driver import RetentionDriver
from mainstem.streams.maintenance.scrub_driver import ScrubDriver
from mainstem.streams.storage_retry_driver import refusal_of
from mainstem.streams.writer.flusher import Flusher

if TYPE_CHECKING:
    from mainstem.node.wiring import NodeServices

SWEEP_INTERVAL_MS = 1_000
REPEATED_AFTER_S = 1.0

_log = logging.getLogger(__name__)


async def repeated(chore: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a job for ever; restart it when this node's storage refuses a step for now."""
    while True:
        try:
            await chore()
        except (Unavailable, OSError) as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            _log.warning("a background job restarts: %s", refusal)
        await asyncio.sleep(REPEATED_AFTER_S)


def run_background_jobs(
    services: "NodeServices", flusher: Flusher, on_fatal: Callable[[BaseException], None]
) -> None:
    """Expire, compact, merge and verify for as long as the node runs."""
    config, streams, store = services.config, services.streams, services.store
    service = services.placement.service
    retention = RetentionDriver(
        streams, store, flusher, services.clock, services.queues.upkeep.floor
    )
    services.watch.show_in(services.metrics)
    services.repeat(services.watch.run, on_fatal)
    interval_ms = config.log.retention_check_interval_ms
    services.repeat(services.queues.upkeep.run, on_fatal)
    services.repeat(partial(retention.run, interval_ms), on_fatal)
    services.repeat(partial(retention.sweep, SWEEP_INTERVAL_MS), on_fatal)
    services.repeat(services.security.delegation_tokens.sweep, on_fatal)
    garbage = GarbageDriver(store, service.catalogue, services.topics.node.id)
    services.repeat(garbage.run, on_fatal)
    if config.log.cleaner_enabled:
        compaction = CompactionDriver(
            streams, service, store, services.clock, config.log.cleaner_keys_bytes_max
        )
        services.repeat(partial(compaction.run, config.log.cleaner_interval_ms), on_fatal)
    merging = MergeDriver(streams, service, store)
    services.repeat(partial(merging.run, interval_ms), on_fatal)
    if config.log.scrub_interval_ms:
        scrub = ScrubDriver(store, services.metrics, streams.ranges.lost)
        services.repeat(partial(scrub.run, config.log.scrub_interval_ms), on_fatal)
