"""Administration of subscriptions to metrics of clients (KIP-714)."""

from mainstem.client import errors
from mainstem.client.administration.named_configs import CLIENT_METRICS, NamedConfigs
from mainstem.client.cluster import Cluster
from mainstem.wire.kafka.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


class ClientMetricsAdmin(NamedConfigs):
    """Administers subscriptions; reached through ``Admin.client_metrics``.

    A subscription exists while it has settings: ``alter`` creates it, and deletes it by resetting
    all of them.
    """

    def __init__(self, cluster: Cluster, *, timeout_ms: int) -> None:
        super().__init__(cluster, CLIENT_METRICS, timeout_ms=timeout_ms)

    async def names(self) -> list[str]:
        """The names of all subscriptions."""
        response: ListConfigResourcesResponse = await self._cluster.call_any(
            ListConfigResourcesRequest([CLIENT_METRICS]), timeout_ms=self._timeout_ms
        )
        errors.check(response.error_code, None, subject="client metrics")
        return sorted(each.resource_name for each in response.config_resources)

    async def delete(self, name: str) -> bool:
        """Deletes a subscription; returns whether it existed."""
        held = await self.settings(name)
        if held:
            await self.alter(name, {}, held)
        return bool(held)
