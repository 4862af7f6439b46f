"""The shape of a step: settings that check themselves, and a turn at the working frame."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import Struct

from mainstem.pipelines.problems import Problem
from mainstem.pipelines.transforms.predicate import Said, path_problem
from mainstem.pipelines.transforms.rows import Rows, Turn

OnError = Literal["dead_letter", "null", "keep"]
"""What becomes of a field that cannot be converted."""

FIELDS_NAMED_MAX = 1000
StructT = TypeVar("StructT", bound=Struct)


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One transformation. Subclasses are its settings and know what to do with rows."""

    needs_fields: ClassVar[bool] = True
    """Whether the value has to be looked into."""

    def problems(self) -> Iterable[Said]:
        """What the types of the settings do not tell; nothing is wrong by default."""
        return ()

    def apply(self, rows: Rows, turn: Turn) -> Rows:
        """Adds the step to the frame."""
        raise AssertionError(f"{type(self).__name__} does nothing")


def path_problems(where: str, names: Iterable[str], *, required: bool = True) -> Iterator[Said]:
    """What is wrong with a list of field names."""
    listed = list(names)
    if required and not listed:
        yield where, "no field is named", "name at least one"
    if len(listed) > FIELDS_NAMED_MAX:
        yield where, f"more than {FIELDS_NAMED_MAX} fields", "use several steps"
    for name in listed:
        if said := path_problem(name):
            yield where, said, ""


def read(kind: type[StructT], given: object, where: str) -> StructT | list[Problem]:
    """Turns part of a pipeline file into its struct, or says everything that is wrong with it."""
    if not isinstance(given, Mapping):
        return [Problem(where, f"an object is wanted, not {_kind(given)}")]
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    problems = [_unknown(str(key), fields, where) for key in given if key not in fields]
    for name, field in fields.items():
        if name not in given:
            if field.required:
                problems.append(Problem(f"{where}.{name}", "is missing"))
            continue
        try:
            msgspec.convert(given[name], field.type)
        except msgspec.ValidationError as error:
            problems.append(_refused(error, f"{where}.{name}"))
    if problems:
        return problems
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        return [_refused(error, where)]


def _unknown(key: str, known: Iterable[str], where: str) -> Problem:
    near = difflib.get_close_matches(key, known, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known) or 'nothing'}"
    return Problem(f"{where}.{key}", "is not known here", remedy)


def _refused(error: msgspec.ValidationError, where: str) -> Problem:
    said, _, place = str(error).partition(" - at `$")
    return Problem(where + place.rstrip("`"), said[:1].lower() + said[1:])


def _kind(given: Any) -> str:
    return "nothing" if given is None else type(given).__name__
