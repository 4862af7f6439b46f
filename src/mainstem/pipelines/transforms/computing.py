"""``compute_field``: computes new fields from others."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct
from pyspark.sql import Column
from pyspark.sql import functions as F

from mainstem.pipelines.transforms.fields import constant, is_empty, put, text, value_at, variant
from mainstem.pipelines.transforms.paths import parse_path
from mainstem.pipelines.transforms.predicate import StepProblem
from mainstem.pipelines.transforms.rows import Rows, StepContext
from mainstem.pipelines.transforms.shaping import fail_where_not_object
from mainstem.pipelines.transforms.step import Step, path_problems
from mainstem.pipelines.transforms.times import iso8601

Operation = Literal["concat", "hash", "upper", "lower", "coalesce", "uuid", "timestamp", "now"]
_SEPARATOR: Final = "\x1f"


class OperationSettings(NamedTuple):
    """The allowed and the required settings of an operation."""

    required: str | None
    optional: tuple[str, ...] = ()


_NEEDS: Final[dict[str, OperationSettings]] = {
    "concat": OperationSettings("parts"),
    "hash": OperationSettings("fields", ("algorithm",)),
    "upper": OperationSettings("source"),
    "lower": OperationSettings("source"),
    "coalesce": OperationSettings("fields", ("default",)),
    "uuid": OperationSettings(None, ("fields",)),
    "timestamp": OperationSettings(None),
    "now": OperationSettings(None),
}


class LiteralPart(Struct, frozen=True, forbid_unknown_fields=True):
    """Literal text, as opposed to the name of a field."""

    literal: str


class Computation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One field to compute.

    ``concat`` joins ``parts``: names of fields, literal text that cannot be a name (``" "``,
    ``"-"``), and ``{literal: word}``; absent fields and nulls count as empty. ``hash`` is the
    digest of ``fields``; ``upper`` and ``lower`` convert ``source``; ``coalesce`` takes the first
    of ``fields`` that is not null, else ``default``; ``uuid`` is random, or derived from
    ``fields``; ``timestamp`` (or ``now``) is the time at which the batch is processed.
    """

    target: str
    type: Operation
    parts: tuple[str | LiteralPart, ...] = ()
    fields: tuple[str, ...] = ()
    source: str | None = None
    default: Any = None
    algorithm: Literal["sha256", "sha512", "md5"] = "sha256"

    def problems(self) -> Iterator[StepProblem]:
        """Problems that the types of the settings do not express."""
        need = _NEEDS[self.type]
        for name, unset in (("parts", ()), ("fields", ()), ("source", None)):
            given = getattr(self, name) != unset
            if name == need.required and not given:
                yield name, f"{self.type} requires {name}", ""
            if given and name != need.required and name not in need.optional:
                yield name, f"{self.type} does not support {name}", ""
        names = (*self.fields, *filter(None, (self.source,)))
        yield from path_problems("target", [self.target])
        yield from path_problems("fields" if self.fields else "source", names, required=False)

    def column(self, fields: Column) -> Column:
        """The value, as a variant."""
        match self.type:
            case "concat":
                plain = F.concat(*(_part(fields, part) for part in self.parts))
            case "hash":
                plain = self._hash(fields)
            case "upper":
                plain = F.upper(self._source(fields))
            case "lower":
                plain = F.lower(self._source(fields))
            case "coalesce":
                found = (value_at(fields, name) for name in self.fields)
                present = (F.when(~is_empty(value), value) for value in found)
                plain = F.coalesce(*present, constant(self.default))
            case "uuid":
                plain = _uuid_of(self._joined(fields)) if self.fields else F.uuid()
            case "timestamp" | "now":
                plain = iso8601(F.current_timestamp())
        return variant(plain)

    def _source(self, fields: Column) -> Column:
        assert self.source is not None, "checked by problems"
        return text(value_at(fields, self.source))

    def _hash(self, fields: Column) -> Column:
        joined = self._joined(fields)
        return F.md5(joined) if self.algorithm == "md5" else F.sha2(joined, int(self.algorithm[3:]))

    def _joined(self, fields: Column) -> Column:
        """The fields as one text, distinct for different lists."""
        if len(self.fields) == 1:
            return text(value_at(fields, self.fields[0]))
        written = (F.coalesce(F.to_json(value_at(fields, name)), F.lit("")) for name in self.fields)
        return F.concat_ws(_SEPARATOR, *written)


class ComputeField(Step, frozen=True, kw_only=True):
    """Computes fields one after the other; later ones may use earlier ones."""

    computations: tuple[Computation, ...]

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        if not self.computations:
            yield "computations", "no field to compute", "add at least one"
        for index, computation in enumerate(self.computations):
            for where, problem_text, remedy in computation.problems():
                yield f"computations[{index}].{where}", problem_text, remedy

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Adds every computed field."""
        for computation in self.computations:
            rows = fail_where_not_object(rows, computation.target, turn)

            def computed(fields: Column, computation: Computation = computation) -> Column:
                return put(fields, computation.target, computation.column(fields))

            rows = rows.edit(computed, turn)
        return rows


def _part(fields: Column, part: str | LiteralPart) -> Column:
    if isinstance(part, LiteralPart):
        return F.lit(part.literal)
    if not _names_a_field(part):
        return F.lit(part)
    return F.coalesce(text(value_at(fields, part)), F.lit(""))


def _names_a_field(part: str) -> bool:
    """Whether a part is a name: it starts with a letter, a digit, ``_``, ``@``, ``$`` or ``[``."""
    if not (part[:1].isalnum() or part[:1] in {"_", "@", "$", "["}) or part != part.strip():
        return False
    try:
        parse_path(part)
    except ValueError:
        return False
    return True


def _uuid_of(plain: Column) -> Column:
    """A UUID of version 8 (RFC 9562): the first 122 bits are those of a SHA-256."""
    digest = F.sha2(plain, 256)
    groups = (
        F.substring(digest, 1, 8),
        F.substring(digest, 9, 4),
        F.concat(F.lit("8"), F.substring(digest, 14, 3)),
        F.concat(F.lit("8"), F.substring(digest, 18, 3)),
        F.substring(digest, 21, 12),
    )
    return F.concat_ws("-", *groups)
