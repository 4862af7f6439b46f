"""Administration of what clients are asked to measure of themselves (KIP-714)."""

from collections.abc import Iterable, Mapping
from typing import Final

from mainstem.client import errors
from mainstem.client.cluster import Cluster
from mainstem.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from mainstem.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from mainstem.wire.kafka.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

CLIENT_METRICS: Final = 16
_SET, _DELETE = 0, 1


class ClientMetricsAdmin:
    """Administers subscriptions; reached through ``Admin.client_metrics``."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def names(self) -> list[str]:
        """Every subscription."""
        response: ListConfigResourcesResponse = await self._cluster.call_any(
            ListConfigResourcesRequest([CLIENT_METRICS]), timeout_ms=self._timeout_ms
        )
        errors.check(response.error_code, None, subject="client metrics")
        return sorted(each.resource_name for each in response.config_resources)

    async def settings(self, name: str) -> dict[str, str]:
        """The settings of a subscription, defaults included; empty if there is none."""
        resource = DescribeConfigsResource(CLIENT_METRICS, name, None)
        response: DescribeConfigsResponse = await self._cluster.call_any(
            DescribeConfigsRequest([resource]), timeout_ms=self._timeout_ms
        )
        [result] = response.results
        errors.check(result.error_code, result.error_message, subject=name)
        return {entry.name: entry.value or "" for entry in result.configs}

    async def alter(
        self, name: str, changed: Mapping[str, str], removed: Iterable[str] = ()
    ) -> None:
        """Sets some settings of a subscription and takes others back; with none it is gone.

        Raises:
            InvalidRequest: a setting is unknown or has a value that it cannot have.
        """
        changes = [AlterableConfig(key, _SET, value) for key, value in changed.items()]
        changes += [AlterableConfig(key, _DELETE, None) for key in removed]
        resource = AlterConfigsResource(CLIENT_METRICS, name, changes)
        response: IncrementalAlterConfigsResponse = await self._cluster.call_controller(
            IncrementalAlterConfigsRequest([resource]), timeout_ms=self._timeout_ms
        )
        for answer in response.responses:
            errors.check(answer.error_code, answer.error_message, subject=name)

    async def delete(self, name: str) -> bool:
        """Takes a subscription away; whether there was one."""
        held = await self.settings(name)
        if held:
            await self.alter(name, {}, held)
        return bool(held)
