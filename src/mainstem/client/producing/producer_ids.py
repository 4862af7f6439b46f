"""Producer ids: one for all partitions of a producer, and a new one where that is unusable."""

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
    """Source of the producer ids of partitions."""

    @property
    def heals(self) -> bool:
        """Whether a partition whose sequence the broker lost may continue under another id."""
        ...

    async def first(self) -> ProducerIdState:
        """The id that a partition starts with."""
        ...

    async def fresh(self) -> ProducerIdState:
        """Another id, after the first became unusable."""
        ...


class ProducerIdAllocator:
    """Requests producer ids from the cluster."""

    heals = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._first: tuple[int, int] | None = None
        self._asking = asyncio.Lock()

    async def first(self) -> ProducerIdState:
        """The id that all partitions start with; sequence numbers are counted per partition."""
        async with self._asking:
            if self._first is None:
                identity = await self.fresh()
                self._first = identity.producer_id, identity.epoch
        return ProducerIdState(*self._first)

    async def fresh(self) -> ProducerIdState:
        """A new, unused id.

        Raises:
            MainstemError: the cluster does not return one.
        """
        response: InitProducerIdResponse = await self._cluster.call_any(
            # Without a transactional id the time-out means nothing, but brokers check it.
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        )
        errors.check(response.error_code)
        return ProducerIdState(response.producer_id, response.producer_epoch)
