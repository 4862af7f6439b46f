"""Finds connectors by name: the built-in ones and those of other packages.

A package registers a module under the entry point group ``mainstem.connectors``:

    [project.entry-points."mainstem.connectors"]
    acme-crm = "acme_mainstem.crm"

The module defines ``SOURCE``, ``SINK`` or both, as the modules of ``pipelines.connectors`` do. Only
the modules that are requested are imported. A package cannot replace a built-in connector.
"""

import importlib
import importlib.metadata
import pkgutil
from types import ModuleType
from typing import Any, Literal

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.pipelines import connectors
from mainstem.pipelines.connector.shapes import Sink, Source
from mainstem.pipelines.connector.spec import Spec
from mainstem.pipelines.problems import nearest

GROUP = "mainstem.connectors"

Kind = Literal["source", "sink"]


class Registry:
    """The connectors of this installation; modules are given by their import names."""

    def __init__(self, modules: dict[str, str] | None = None) -> None:
        self._modules = _announced() if modules is None else dict(modules)

    def names(self) -> list[str]:
        """The names of all connectors."""
        return sorted(self._modules)

    def source(self, name: str) -> Source[Any]:
        """The source called ``name``.

        Raises:
            InvalidRequest: it does not exist; the remedy names the nearest.
        """
        found: Source[Any] = self._offered(name, "source")
        return found

    def sink(self, name: str) -> Sink[Any]:
        """The sink called ``name``.

        Raises:
            InvalidRequest: it does not exist; the remedy names the nearest.
        """
        found: Sink[Any] = self._offered(name, "sink")
        return found

    def inventory(self) -> list[Spec]:
        """The specs of all sources and sinks, by category and name."""
        specs = [
            offered.spec()
            for name in self.names()
            for kind in ("SOURCE", "SINK")
            if (offered := getattr(self._module(name), kind, None)) is not None
        ]
        return sorted(specs, key=lambda spec: (spec.category, spec.name, spec.kind))

    def _offered(self, name: str, kind: Kind) -> Any:
        if name not in self._modules:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"there is no connector {name!r}",
                subject=name,
                remedy=nearest(name, self._modules) or f"known: {', '.join(self.names())}",
            )
        offered = getattr(self._module(name), kind.upper(), None)
        if offered is None:
            other = "sink" if kind == "source" else "source"
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"{name} is a {other}, not a {kind}",
                subject=name,
                remedy=f"put it under {other}s",
            )
        return offered

    def _module(self, name: str) -> ModuleType:
        return importlib.import_module(self._modules[name])


def _announced() -> dict[str, str]:
    others = importlib.metadata.entry_points(group=GROUP)
    found = {point.name: point.value.removesuffix(":") for point in others}
    for module in pkgutil.iter_modules(connectors.__path__):
        if not module.name.startswith("_"):
            name = module.name.replace("_", "-")
            found[name] = f"{connectors.__name__}.{module.name}"
    return found
