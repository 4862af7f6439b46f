"""Settings of consumer groups: described with their source, and changed at run time."""

from collections.abc import Mapping, Sequence

from mainstem.broker.api.configs import ConfigValue
from mainstem.broker.services.named_config_service import NamedConfigAdmin, Texts, shown
from mainstem.model.config.group import (
    GROUP_KEYS,
    NODE_NAMES,
    GroupBounds,
    check_group_configs,
)
from mainstem.model.config.key import ConfigKey
from mainstem.placement.changes.commands import SetGroupConfigs
from mainstem.placement.service import PlacementService


class GroupConfigAdmin(NamedConfigAdmin):
    """What is set on groups. ``static`` is the node's configuration by Kafka's names."""

    def __init__(self, placement: PlacementService, static: Mapping[str, str]) -> None:
        super().__init__(placement, "group", GROUP_KEYS)
        self._static = static
        self._bounds = GroupBounds.of(static)

    def every(self) -> Mapping[str, Texts]:
        """What is set, by group."""
        return self._placement.catalogue.group_configs()

    def describe(self, group: str) -> Sequence[ConfigValue]:
        """Every setting of a group and its source."""
        texts = self.texts(group)
        return [shown(key, texts, "group", self._of_node(key)) for key in GROUP_KEYS.values()]

    def _check(self, configs: Texts) -> None:
        check_group_configs(configs, self._bounds)

    def _command(self, name: str, before: dict[str, str], after: dict[str, str]) -> SetGroupConfigs:
        return SetGroupConfigs(name, before, after)

    def _of_node(self, key: ConfigKey) -> list[tuple[str, str | None, str]]:
        name = NODE_NAMES.get(key.name, key.name)
        origins: list[tuple[str, str | None, str]] = [(name, key.default, "default")]
        if name in self._static:
            origins.insert(0, (name, self._static[name], "static"))
        return origins
