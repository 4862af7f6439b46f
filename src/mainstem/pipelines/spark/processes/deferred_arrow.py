"""Lets the processes in which Spark plans do without Arrow: they name it and do not use it.

PySpark's planners import Arrow, 36 MB, for the annotations of functions that run in workers.
Promise: a process that does use Arrow gets it, whole, at that moment; what is pickled here means
Arrow itself where it is unpickled.
"""

import importlib
import sys
from types import ModuleType
from typing import Any, Final

_ARROW: Final = "pyarrow"
_BATCH: Final = "RecordBatch"


def defer_arrow_import() -> None:
    """To be called before PySpark is imported; does nothing where Arrow is loaded already."""
    if _ARROW not in sys.modules:
        sys.modules[_ARROW] = _Arrow(_ARROW)


class _Arrow(ModuleType):
    """Stands for Arrow until something of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name == _BATCH and sys.modules.get(_ARROW) is self:
            return RecordBatch
        return getattr(_loaded(), name)

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (_ARROW,)


class _Named(type):
    """Asked whether something is a batch before Arrow is there: nothing can be."""

    def __instancecheck__(cls, instance: object) -> bool:
        return not _is_held_back() and isinstance(instance, _loaded().RecordBatch)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_loaded().RecordBatch, name)


class RecordBatch(metaclass=_Named):
    """Arrow's class in annotations."""

    def __new__(cls, *given: Any, **named: Any) -> Any:
        """What Arrow makes of it."""
        return _loaded().RecordBatch(*given, **named)


def _is_held_back() -> bool:
    return isinstance(sys.modules.get(_ARROW), _Arrow)


def _loaded() -> ModuleType:
    if _is_held_back():
        del sys.modules[_ARROW]
    return importlib.import_module(_ARROW)
