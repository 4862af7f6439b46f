"""Defers the import of pandas in Spark's Python workers until it is used.

Arrow looks for pandas the first time that it creates an array, and so each worker would load it,
about 20 MB, without using it. Guarantee: code that imports pandas gets it, and Arrow uses it from
that moment on, as if it had found it itself.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

import pyarrow

_PANDAS: Final = "pandas"


def defer_pandas_import() -> None:
    """Must be called before anything is converted; does nothing if pandas is already loaded."""
    if _PANDAS in sys.modules:
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    pyarrow.array([0])  # Arrow checks now, and does not check again
    finder.is_hiding = False


class _Finder(MetaPathFinder):
    """Delegates to other finders and then informs Arrow; finds nothing while it hides pandas."""

    def __init__(self) -> None:
        self.is_hiding = True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _PANDAS:
            return None
        if self.is_hiding:
            raise ModuleNotFoundError(name=fullname)
        for finder in sys.meta_path:
            found = None if finder is self else finder.find_spec(fullname, path, target)
            if found is not None:
                if found.loader is not None:
                    found.loader = _Loader(found.loader)
                return found
        return None


class _Loader(Loader):
    def __init__(self, inner: Loader) -> None:
        self._inner = inner

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        self._inner.exec_module(module)
        # Accessing pandas itself makes Arrow check once more.
        assert pyarrow.lib._pandas_api.pd is module
