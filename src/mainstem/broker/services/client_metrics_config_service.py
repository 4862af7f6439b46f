"""Settings of subscriptions to clients' metrics (KIP-714)."""

from collections.abc import Mapping, Sequence

from mainstem.broker.api.configs import ConfigValue
from mainstem.broker.services.named_config_service import NamedConfigAdmin, Texts, shown
from mainstem.coordination.pattern import compile_pattern
from mainstem.model.config.client_metrics import (
    CLIENT_METRICS_KEYS,
    MATCH,
    check_client_metrics_configs,
    selectors_of,
)
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.placement.changes.commands import SetClientMetrics
from mainstem.placement.service import PlacementService


class ClientMetricsConfigAdmin(NamedConfigAdmin):
    """What is set on subscriptions."""

    def __init__(self, placement: PlacementService) -> None:
        super().__init__(placement, "client metrics", CLIENT_METRICS_KEYS)

    def every(self) -> Mapping[str, Texts]:
        """What is set, by subscription."""
        return self._placement.catalogue.client_metrics

    def describe(self, name: str) -> Sequence[ConfigValue]:
        """Every setting of a subscription; empty for an unknown one."""
        texts = self.texts(name)
        if not texts:
            return []
        return [
            shown(key, texts, "client_metrics", [(key.name, key.default, "default")])
            for key in CLIENT_METRICS_KEYS.values()
        ]

    def _check(self, configs: Texts) -> None:
        check_client_metrics_configs(configs)
        for selector, pattern in selectors_of(configs.get(MATCH, "")).items():
            try:
                compile_pattern(pattern)
            except InvalidRequest as error:
                raise InvalidRequest(
                    ErrorCode.INVALID_CONFIG,
                    f"invalid expression for {selector}: {error.cause}",
                    subject=MATCH,
                    remedy=error.remedy,
                ) from error

    def _command(
        self, name: str, before: dict[str, str], after: dict[str, str]
    ) -> SetClientMetrics:
        return SetClientMetrics(name, before, after)
