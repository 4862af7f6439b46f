"""Settings of resources that consist of a name and settings: groups, metric subscriptions."""

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

CLIENT_METRICS: Final = 16
GROUP: Final = 32
_SET, _DELETE = 0, 1


class NamedConfigs:
    """Settings by name, of one ``kind`` of resource."""

    def __init__(self, cluster: Cluster, kind: int, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._kind = kind
        self._timeout_ms = timeout_ms

    async def settings(self, name: str) -> dict[str, str]:
        """The settings under a name, defaults included."""
        resource = DescribeConfigsResource(self._kind, name, None)
        response: DescribeConfigsResponse = await self._cluster.call_any(
            DescribeConfigsRequest([resource]), timeout_ms=self._timeout_ms
        )
        [result] = response.results
        errors.check(result.error_code, result.error_message, subject=name)
        return {entry.name: entry.value or "" for entry in result.configs}

    async def alter(
        self, name: str, changed: Mapping[str, str], removed: Iterable[str] = ()
    ) -> None:
        """Sets some settings under a name and resets others to their defaults.

        Raises:
            InvalidRequest: a setting is unknown or its value is invalid.
        """
        changes = [AlterableConfig(key, _SET, value) for key, value in changed.items()]
        changes += [AlterableConfig(key, _DELETE, None) for key in removed]
        resource = AlterConfigsResource(self._kind, name, changes)
        response: IncrementalAlterConfigsResponse = await self._cluster.call_controller(
            IncrementalAlterConfigsRequest([resource]), timeout_ms=self._timeout_ms
        )
        for answer in response.responses:
            errors.check(answer.error_code, answer.error_message, subject=name)
