"""Settings stored under a name (groups, metric subscriptions): described and changed."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from mainstem.broker.api.configs import ConfigChange, ConfigValue
from mainstem.broker.services.config_changes import changed, without_nulls
from mainstem.model.config.key import ConfigKey
from mainstem.model.errors import ErrorCode, Fenced, Unavailable
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.service import PlacementService

CONFLICTS_MAX = 10

Texts = Mapping[str, str]


class NamedConfigAdmin(ABC):
    """Base class for all kinds of names."""

    def __init__(
        self, placement: PlacementService, kind: str, keys: Mapping[str, ConfigKey]
    ) -> None:
        self._placement = placement
        self._kind = kind
        self._keys = keys

    @abstractmethod
    def every(self) -> Mapping[str, Texts]:
        """What is set, by name."""

    def names(self) -> Sequence[str]:
        """Every name that has settings of its own."""
        return sorted(self.every())

    def texts(self, name: str) -> Texts:
        """What is set under a name."""
        return self.every().get(name, {})

    async def alter(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change some of what is set under a name."""

        def after(before: Texts) -> dict[str, str]:
            return changed(before, changes, self._keys, lambda key: key.default)

        await self._set(name, after, validate_only=validate_only)

    async def replace(
        self, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Replace all settings under a name with ``configs``."""
        texts = without_nulls(configs)
        await self._set(name, lambda _: texts, validate_only=validate_only)

    @abstractmethod
    def _check(self, configs: Texts) -> None:
        """Refuse what may not be set."""

    @abstractmethod
    def _command(self, name: str, before: dict[str, str], after: dict[str, str]) -> Command[None]:
        """The command that makes the change."""

    async def _set(
        self, name: str, after: Callable[[Texts], dict[str, str]], *, validate_only: bool
    ) -> None:
        for _ in range(CONFLICTS_MAX):
            before = dict(self.texts(name))
            wanted = after(before)
            self._check(wanted)
            if before == wanted:
                return
            command = self._command(name, before, wanted)
            try:
                if validate_only:
                    self._placement.check(command)
                else:
                    await self._placement.submit(command)
            except Fenced:
                continue
            return
        raise Unavailable(
            ErrorCode.OVERLOADED,
            "its settings were changed concurrently too often",
            subject=f"{self._kind} {name}",
        )


def shown(
    key: ConfigKey, set_here: Texts, source: str, fallbacks: Sequence[tuple[str, str | None, str]]
) -> ConfigValue:
    """A setting with all sources of its value, the effective one first."""
    origins = list(fallbacks)
    if key.name in set_here:
        origins.insert(0, (key.name, set_here[key.name], source))
    return ConfigValue(
        key.name,
        origins[0][1],
        origins[0][2],
        key.type,
        documentation=key.documentation,
        synonyms=tuple(origins),
    )
