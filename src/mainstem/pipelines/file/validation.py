"""Compares values with their types and reports every difference, not just the first.

msgspec stops at the first; this walks structs, lists and mappings itself and calls msgspec for the
leaves only, so that the rules (bounds, patterns, choices) are defined in one place: the types.
"""

import enum
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from mainstem.pipelines.file.document import EnvironmentText
from mainstem.pipelines.problems import FileProblem, nearest

StructT = TypeVar("StructT", bound=Struct)


class Mismatch(Struct, frozen=True):
    """A problem; ``at_key`` when its position is that of the key rather than of the value."""

    problem: FileProblem
    at_key: bool = False


def fit(value: object, type_: type[StructT], path: str) -> tuple[StructT | None, list[Mismatch]]:
    """The value as a struct, or None and all reasons why it is invalid."""
    mismatches: list[Mismatch] = []
    plain = _Walk(mismatches).walk(value, type_, path)
    if mismatches:
        return None, mismatches
    try:
        return msgspec.convert(plain, type_), []
    except msgspec.ValidationError as error:
        return None, [Mismatch(_leaf_problem(error, path))]


def secrets_in(config: Struct) -> Iterable[str]:
    """The values of all settings whose type is marked as secret, at any depth."""
    for field in msgspec.structs.fields(type(config)):
        value = getattr(config, field.name)
        if isinstance(value, str) and _is_secret(field.type):
            yield value
        for inner in value.values() if isinstance(value, Mapping) else _several(value):
            if isinstance(inner, Struct):
                yield from secrets_in(inner)
            elif isinstance(inner, str) and _is_secret(field.type):
                yield inner


def _several(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else (value,)


class _Walk:
    """Validates a value against its type; in the result, text of the environment is converted."""

    def __init__(self, mismatches: list[Mismatch]) -> None:
        self._mismatches = mismatches

    def walk(self, value: object, type_: Any, path: str) -> object:
        bare = _bare(type_)
        if isinstance(bare, type) and issubclass(bare, Struct):
            return self._struct(value, bare, path)
        origin, arguments = get_origin(bare), get_args(bare)
        if origin in {Union, types.UnionType}:
            return self._union(value, type_, arguments, path)
        if origin in {list, tuple} and isinstance(value, list):
            return self._list(value, type_, arguments[0], path)
        if origin in {dict, Mapping} and isinstance(value, dict):
            inner = arguments[1]
            return {name: self.walk(each, inner, f"{path}.{name}") for name, each in value.items()}
        return self._leaf(value, type_, path)

    def _list(self, value: list[object], type_: Any, inner: Any, path: str) -> object:
        before = len(self._mismatches)
        walked = [self.walk(each, inner, f"{path}[{n}]") for n, each in enumerate(value)]
        if len(self._mismatches) == before:
            self._leaf(walked, type_, path)  # bounds on the list itself
        return walked

    def _struct(self, value: object, type_: type[Struct], path: str) -> object:
        if not isinstance(value, dict):
            self._report(path, f"expected a mapping, got {_kind(value)}")
            return value
        fields = {field.encode_name: field for field in msgspec.structs.fields(type_)}
        tag = type_.__struct_config__.tag_field
        for name in value:
            if name not in fields and name != tag:
                remedy = nearest(name, fields) or f"known keys: {', '.join(fields)}"
                self._report(_join(path, name), "unknown key", remedy, at_key=True)
        for name, field in fields.items():
            if field.required and name not in value:
                self._report(path, f"{name} is missing", at_key=True)
        return {
            name: self.walk(each, fields[name].type, _join(path, name)) if name in fields else each
            for name, each in value.items()
        }

    def _union(self, value: object, type_: Any, arguments: tuple[Any, ...], path: str) -> object:
        if value is None and type(None) in arguments:
            return None
        others = [each for each in arguments if each is not type(None)]
        if len(others) == 1:
            return self.walk(value, others[0], path)
        structs = [each for each in others if isinstance(each, type) and issubclass(each, Struct)]
        if isinstance(value, dict) and structs:
            for each in structs:
                config = each.__struct_config__
                if config.tag_field is None or value.get(config.tag_field) == config.tag:
                    return self._struct(value, each, path)
        return self._leaf(value, type_, path)

    def _leaf(self, value: object, type_: Any, path: str) -> object:
        # Text from the environment is converted to the expected type.
        plain = str(value) if isinstance(value, EnvironmentText) else _plain(value)
        if (choices := _choices(type_)) and plain not in choices:
            remedy = nearest(str(plain), choices) or f"one of {', '.join(choices)}"
            self._report(path, f"{plain!r} is not among the choices", remedy)
            return plain
        try:
            return msgspec.to_builtins(
                msgspec.convert(plain, type_, strict=not isinstance(value, EnvironmentText))
            )
        except msgspec.ValidationError as error:
            self._mismatches.append(Mismatch(_leaf_problem(error, path)))
            return plain

    def _report(self, path: str, message: str, remedy: str = "", *, at_key: bool = False) -> None:
        self._mismatches.append(Mismatch(FileProblem(path, message, remedy), at_key=at_key))


def _bare(type_: Any) -> Any:
    return get_args(type_)[0] if get_origin(type_) is Annotated else type_


def _is_secret(type_: Any) -> bool:
    """Whether a type, or any type in it, is marked as secret."""
    if get_origin(type_) is Annotated and any(
        isinstance(meta, msgspec.Meta) and (meta.extra_json_schema or {}).get("writeOnly")
        for meta in get_args(type_)[1:]
    ):
        return True
    return any(_is_secret(each) for each in get_args(type_) if not isinstance(each, str))


def _choices(type_: Any) -> list[str]:
    """The texts that a type allows, if it is a list of literals."""
    bare = _bare(type_)
    if get_origin(bare) is Literal:
        values = get_args(bare)
        return list(values) if all(isinstance(each, str) for each in values) else []
    if isinstance(bare, type) and issubclass(bare, enum.StrEnum):
        return [each.value for each in bare]
    return []


def _plain(value: object) -> object:
    if isinstance(value, EnvironmentText):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value


def _leaf_problem(error: msgspec.ValidationError, path: str) -> FileProblem:
    message, _, where = str(error).partition(" - at `$")
    for theirs, ours in _WORDS.items():
        message = message.replace(theirs, ours)
    inner = where.removesuffix("`")
    full = path + inner if path else inner.removeprefix(".")
    return FileProblem(full, message[:1].lower() + message[1:])


# Type names of msgspec, as users of YAML know them.
_WORDS = {
    "`array`": "a list",
    "`object`": "a mapping",
    "`str`": "text",
    "`int`": "a whole number",
    "`float`": "a number",
    "`bool`": "true or false",
    "`null`": "nothing",
    "`": "",
}


def _kind(value: object) -> str:
    names = {dict: "a mapping", list: "a list", bool: "a boolean", type(None): "nothing"}
    return names.get(type(value), "text" if isinstance(value, str) else type(value).__name__)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
