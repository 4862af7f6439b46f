"""The interface of a step: settings that check themselves, and their application to a frame."""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Literal, TypeVar

import msgspec
from msgspec import Struct

from mainstem.pipelines.problems import FileProblem, nearest
from mainstem.pipelines.transforms.predicate import StepProblem, path_problem
from mainstem.pipelines.transforms.rows import Rows, StepContext

OnError = Literal["dead_letter", "null", "keep"]
"""What happens to a field that cannot be converted."""

FIELDS_NAMED_MAX = 1000
StructT = TypeVar("StructT", bound=Struct)


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One transformation. Subclasses define its settings and its effect on rows."""

    needs_fields: ClassVar[bool] = True
    """Whether the parsed value is needed."""

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express; none by default."""
        return ()

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Adds the step to the frame."""
        raise AssertionError(f"{type(self).__name__} does not implement apply")


def path_problems(
    where: str, names: Iterable[str], *, required: bool = True
) -> Iterator[StepProblem]:
    """The problems of a list of field names."""
    listed = list(names)
    if required and not listed:
        yield where, "no field is given", "add at least one"
    if len(listed) > FIELDS_NAMED_MAX:
        yield where, f"more than {FIELDS_NAMED_MAX} fields", "use several steps"
    for name in listed:
        if problem_text := path_problem(name):
            yield where, problem_text, ""


def read(kind: type[StructT], given: object, where: str) -> StructT | list[FileProblem]:
    """Converts part of a pipeline file to its struct, or returns all its problems."""
    if not isinstance(given, Mapping):
        return [FileProblem(where, f"expected an object, got {_kind(given)}")]
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    problems = [_unknown(str(key), fields, where) for key in given if key not in fields]
    for name, field in fields.items():
        if name not in given:
            if field.required:
                problems.append(FileProblem(f"{where}.{name}", "is missing"))
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


def _unknown(key: str, known: Iterable[str], where: str) -> FileProblem:
    remedy = nearest(key, known) or f"known: {', '.join(known) or 'nothing'}"
    return FileProblem(f"{where}.{key}", "is unknown", remedy)


def _refused(error: msgspec.ValidationError, where: str) -> FileProblem:
    problem_text, _, place = str(error).partition(" - at `$")
    return FileProblem(where + place.rstrip("`"), problem_text[:1].lower() + problem_text[1:])


def _kind(given: object) -> str:
    return "nothing" if given is None else type(given).__name__
