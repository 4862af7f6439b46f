"""Settings of consumer groups: shown with where they come from, and changed at run time."""

from collections.abc import Callable, Mapping, Sequence

from mainstem.broker.config_changes import changed, without_nulls
from mainstem.broker.topics_api import ConfigChange, ConfigValue
from mainstem.model.config_key import ConfigKey
from mainstem.model.errors import ErrorCode, Fenced, Unavailable
from mainstem.model.group_config import (
    GROUP_KEYS,
    NODE_NAMES,
    GroupBounds,
    check_group_configs,
)
from mainstem.placement.records import SetGroupConfigs
from mainstem.placement.service import PlacementService

CONFLICTS_MAX = 10


class GroupConfigAdmin:
    """What is set on groups. ``static`` is the node's configuration by Kafka's names."""

    def __init__(self, placement: PlacementService, static: Mapping[str, str]) -> None:
        self._placement = placement
        self._static = static
        self._bounds = GroupBounds.of(static)

    def names(self) -> Sequence[str]:
        """Every group that has settings of its own."""
        return sorted(self._placement.catalogue.group_configs())

    def texts(self, group: str) -> Mapping[str, str]:
        """What is set on a group."""
        return self._placement.catalogue.group_configs().get(group, {})

    def describe(self, group: str) -> Sequence[ConfigValue]:
        """Every setting of a group and where it comes from."""
        return [self._shown(self.texts(group), key) for key in GROUP_KEYS.values()]

    async def alter(
        self, group: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change some of what is set on a group."""

        def after(before: Mapping[str, str]) -> dict[str, str]:
            return changed(before, changes, GROUP_KEYS, lambda key: key.default)

        await self._set(group, after, validate_only=validate_only)

    async def replace(
        self, group: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Let ``configs`` be all that is set on a group."""
        texts = without_nulls(configs)
        await self._set(group, lambda _: texts, validate_only=validate_only)

    async def _set(
        self,
        group: str,
        after: Callable[[Mapping[str, str]], dict[str, str]],
        *,
        validate_only: bool,
    ) -> None:
        for _ in range(CONFLICTS_MAX):
            before = dict(self.texts(group))
            command = SetGroupConfigs(group, before, after(before))
            check_group_configs(command.configs, self._bounds)
            if command.expected == command.configs:
                return
            try:
                if validate_only:
                    self._placement.check(command)
                else:
                    await self._placement.submit(command)
            except Fenced:
                continue
            return
        raise Unavailable(
            ErrorCode.OVERLOADED, "its settings change all the time", subject=f"group {group}"
        )

    def _shown(self, set_here: Mapping[str, str], key: ConfigKey) -> ConfigValue:
        node_name = NODE_NAMES[key.name]
        origins: list[tuple[str, str | None, str]] = []
        if key.name in set_here:
            origins.append((key.name, set_here[key.name], "group"))
        if node_name in self._static:
            origins.append((node_name, self._static[node_name], "static"))
        origins.append((node_name, key.default, "default"))
        return ConfigValue(
            key.name,
            origins[0][1],
            origins[0][2],
            key.type,
            documentation=key.documentation,
            synonyms=tuple(origins),
        )
