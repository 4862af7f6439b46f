"""Defers the import of Arrow in Spark's planning processes, which name it but do not use it.

PySpark's planners import Arrow, 36 MB, for the annotations of functions that run in workers.
Guarantee: a process that does use Arrow gets it, complete, at that moment; references pickled here
are unpickled as Arrow itself.
"""

import importlib
import sys
from types import ModuleType
from typing import Any, Final

_ARROW: Final = "pyarrow"
_BATCH: Final = "RecordBatch"


def defer_arrow_import() -> None:
    """Must be called before PySpark is imported; does nothing if Arrow is already loaded."""
    if _ARROW not in sys.modules:
        sys.modules[_ARROW] = _Arrow(_ARROW)


class _Arrow(ModuleType):
    """A placeholder for Arrow until one of its attributes is used."""

    def __getattr__(self, name: str) -> Any:
        if name == _BATCH and sys.modules.get(_ARROW) is self:
            return RecordBatch
        return getattr(_loaded(), name)

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (_ARROW,)


class _Named(type):
    """Instance checks before Arrow is loaded are false, because no batch can exist."""

    def __instancecheck__(cls, instance: object) -> bool:
        return not _is_held_back() and isinstance(instance, _loaded().RecordBatch)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_loaded().RecordBatch, name)


class RecordBatch(metaclass=_Named):
    """Arrow's class in annotations."""

    def __new__(cls, *given: Any, **named: Any) -> Any:
        """Creates a batch of Arrow itself."""
        return _loaded().RecordBatch(*given, **named)


def _is_held_back() -> bool:
    return isinstance(sys.modules.get(_ARROW), _Arrow)


def _loaded() -> ModuleType:
    if _is_held_back():
        del sys.modules[_ARROW]
    return importlib.import_module(_ARROW)
