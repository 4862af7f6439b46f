"""Bindings of a headers exchange, found by the headers of a message.

A binding that requires *all* of its headers is stored under one of them, one that requires *any*
under each. A message looks up its own headers and checks the results, so its cost grows with its
headers and with the bindings that share one, not with all bindings.

``x-match``: ``all`` (the default), ``any``, and both ``-with-x``, which include headers whose names
start with ``x-``. A header without a value in the binding only has to be present.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import BINDING_ARGUMENTS_MAX

T = TypeVar("T")

X_MATCH = "x-match"
_PRESENT = "present"
_RULES = {"all": (True, False), "any": (False, False)}
_RULES |= {f"{name}-with-x": (is_all, True) for name, (is_all, _) in _RULES.items()}

_Probe = tuple[str, Hashable]


class HeaderTable(Generic[T]):
    """Values under header conditions; see the module."""

    def __init__(self) -> None:
        self._probes: dict[_Probe, dict[T, tuple[_Probe, ...]]] = {}
        self._always: dict[T, None] = {}

    def add(self, arguments: Mapping[str, Any], value: T) -> None:
        """Add a value for messages whose headers meet the arguments."""
        wanted, is_all = conditions(arguments)
        if not wanted:
            if is_all:
                self._always[value] = None
            return
        # `all` is checked against every condition, `any` is met by the one it was found under.
        for probe in wanted[:1] if is_all else wanted:
            self._probes.setdefault(probe, {})[value] = wanted if is_all else ()

    def discard(self, arguments: Mapping[str, Any], value: T) -> None:
        """Remove a value."""
        wanted, is_all = conditions(arguments)
        if not wanted:
            self._always.pop(value, None)
            return
        for probe in wanted[:1] if is_all else wanted:
            under = self._probes.get(probe, {})
            under.pop(value, None)
            if not under:
                self._probes.pop(probe, None)

    def match(self, headers: Mapping[str, Any]) -> Iterator[T]:
        """Every value whose condition these headers meet; may contain duplicates."""
        yield from self._always
        if not self._probes:
            return
        offered: set[_Probe] = set()
        for name, value in headers.items():
            offered.add((name, _PRESENT))
            offered.add((name, frozen(value)))
        for probe in offered:
            for value, others in self._probes.get(probe, {}).items():
                if all(other in offered for other in others):
                    yield value


def conditions(arguments: Mapping[str, Any]) -> tuple[tuple[_Probe, ...], bool]:
    """The headers that a binding requires, and whether it requires all of them.

    Raises:
        InvalidRequest: ``x-match`` is unknown, or there are too many arguments.
    """
    if len(arguments) > BINDING_ARGUMENTS_MAX:
        raise InvalidRequest(
            ErrorCode.INVALID_BINDING, f"a binding has at most {BINDING_ARGUMENTS_MAX} arguments"
        )
    rule = arguments.get(X_MATCH, "all")
    if isinstance(rule, bytes):
        rule = rule.decode(errors="replace")
    if rule not in _RULES:
        raise InvalidRequest(
            ErrorCode.INVALID_BINDING, f"x-match is {rule!r}, not one of {', '.join(_RULES)}"
        )
    is_all, with_x = _RULES[rule]
    wanted = tuple(
        (name, _PRESENT if value is None else frozen(value))
        for name, value in sorted(arguments.items())
        if name != X_MATCH and (with_x or not name.startswith("x-"))
    )
    return wanted, is_all


def frozen(value: Any) -> Hashable:
    """A hashable value; booleans differ from numbers, text equals its bytes."""
    kind: str = type(value).__name__
    if isinstance(value, bool) or value is None:
        return (kind, value)
    if isinstance(value, int | float):
        return ("number", value)
    if isinstance(value, str | bytes | bytearray | memoryview):
        return ("bytes", value.encode() if isinstance(value, str) else bytes(value))
    if isinstance(value, Mapping):
        return ("table", tuple(sorted((key, frozen(each)) for key, each in value.items())))
    if isinstance(value, list | tuple):
        return ("list", tuple(frozen(each) for each in value))
    return (kind, str(value))
