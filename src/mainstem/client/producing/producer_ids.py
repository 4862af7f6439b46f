"""Producer ids: one for all partitions of a producer, and a fresh one where that is worn out."""

import asyncio
from typing import Protocol

from mainstem.client import errors
from mainstem.client.cluster import Cluster
from mainstem.client.producing.outbox import ProducerIdState
from mainstem.wire.kafka.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


class ProducerIdSource(Protocol):
    """Where partitions get the producer id that they are written under."""

    @property
    def heals(self) -> bool:
        """Whether a partition whose sequence the broker lost may go on under another id."""
        ...

    async def first(self) -> ProducerIdState:
        """The id that a partition begins with."""
        ...

    async def fresh(self) -> ProducerIdState:
        """Another id, after the first was lost."""
        ...


class ProducerIdAllocator:
    """Asks the cluster for producer ids."""

    heals = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._first: tuple[int, int] | None = None
        self._asking = asyncio.Lock()

    async def first(self) -> ProducerIdState:
        """The id that all partitions begin with; sequence numbers are counted per partition."""
        async with self._asking:
            if self._first is None:
                identity = await self.fresh()
                self._first = identity.producer_id, identity.epoch
        return ProducerIdState(*self._first)

    async def fresh(self) -> ProducerIdState:
        """An id that nobody has used.

        Raises:
            MainstemError: the cluster gives none.
        """
        response: InitProducerIdResponse = await self._cluster.call_any(
            # Without a transactional id the time-out means nothing, but brokers check it.
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        )
        errors.check(response.error_code)
        return ProducerIdState(response.producer_id, response.producer_epoch)
