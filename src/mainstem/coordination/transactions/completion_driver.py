"""Completes decided transactions: writes their markers to all partitions, then stores the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from mainstem.coordination.transactions.markers_driver import Markers
from mainstem.coordination.transactions.shard import facts_of
from mainstem.coordination.transactions.shards_driver import LiveTransactionShard
from mainstem.coordination.transactions.state import ProducerIdentity, TransactionState
from mainstem.model.clock import Clock
from mainstem.model.errors import MainstemError
from mainstem.streams.producers.transaction_markers import TransactionMarker

_log = logging.getLogger(__name__)
_PAUSE_S = 1.0


class TransactionCompleter:
    """The transactions whose markers are being written.

    Args:
        markers: writes markers to partitions.
        clock: source of time.
        run: runs work in the background until the coordinator stops.
    """

    def __init__(
        self,
        markers: Markers,
        clock: Clock,
        run: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._markers = markers
        self._clock = clock
        self._run = run
        self._finishing: dict[str, asyncio.Future[None]] = {}
        self._work: dict[str, tuple[LiveTransactionShard, asyncio.Task[None]]] = {}

    def begin(self, live: LiveTransactionShard, transactional_id: str) -> None:
        """Start to write the markers of a decided and stored outcome to every partition."""
        assert transactional_id not in self._finishing, "an outcome is decided once"
        self._finishing[transactional_id] = asyncio.get_running_loop().create_future()
        work = self._run(self._finish(live, transactional_id))
        self._work[transactional_id] = (live, work)

    async def finished(self, transactional_id: str, wait_max_s: float) -> bool:
        """Whether a transaction is completed now, or within that time."""
        finishing = self._finishing.get(transactional_id)
        if finishing is not None and wait_max_s > 0:
            await asyncio.wait([finishing], timeout=wait_max_s)
        return finishing is not None and finishing.done()

    def stop(self) -> None:
        """Cancel waiting requests; decided transactions are completed after the next start."""
        for finishing in self._finishing.values():
            finishing.cancel()

    def given_up(self, live: LiveTransactionShard) -> None:
        """Stop work on a shard that moved to another node, which completes its transactions."""
        for transactional_id, (where, work) in list(self._work.items()):
            if where is live:
                work.cancel()
                del self._work[transactional_id]
                self._finishing.pop(transactional_id).cancel()

    async def _finish(self, live: LiveTransactionShard, transactional_id: str) -> None:
        # An outcome that a power loss could revert must not become visible.
        await _retry_until_done(live.safe)
        decided = live.shard.get(transactional_id)
        assert decided is not None, "a decided transaction is not deleted"
        assert decided.state.is_prepared, "only this task completes it"
        await self._markers.write_all(
            decided.partitions,
            ProducerIdentity(decided.producer_id, decided.epoch),
            TransactionMarker(decided.state is TransactionState.PREPARE_COMMIT, live.epoch),
        )

        async def complete() -> None:
            now_ms = self._clock.wall_ms()
            live.store(facts_of(live.shard.complete(transactional_id, now_ms)), now_ms)

        await _retry_until_done(complete)
        del self._work[transactional_id]
        self._finishing.pop(transactional_id).set_result(None)


async def _retry_until_done(act: Callable[[], Awaitable[None]]) -> None:
    """Retry until it succeeds: a decided transaction can only be completed."""
    while True:
        try:
            await act()
        except MainstemError as error:
            _log.warning("a decided transaction cannot be completed, will retry: %s", error)
            await asyncio.sleep(_PAUSE_S)
        else:
            return
