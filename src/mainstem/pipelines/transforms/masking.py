"""Steps that hide values: ``mask_field`` and ``set_null``."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta
from pyspark.sql import Column
from pyspark.sql import functions as F

from mainstem.pipelines.connector.spec import Secret
from mainstem.pipelines.transforms.fields import edit, is_empty, json_null, text, variant
from mainstem.pipelines.transforms.predicate import StepProblem, equals, pattern_problem, whole
from mainstem.pipelines.transforms.rows import Rows, StepContext
from mainstem.pipelines.transforms.step import Step, path_problems


class MaskField(Step, frozen=True, kw_only=True):
    """Replaces values by masks; nulls stay null.

    ``redact`` writes ``replacement``; ``sha256`` and ``sha512`` the digest, in hexadecimal, of
    ``salt`` and the value as text; ``keep_last`` and ``keep_first`` asterisks for all but ``keep``
    characters (or for all, if there are at most ``keep``); ``null`` JSON's null.
    """

    fields: tuple[str, ...]
    method: Literal["redact", "sha256", "sha512", "keep_last", "keep_first", "null"] = "redact"
    replacement: str = "***"
    salt: Secret = ""
    keep: Annotated[int, Meta(ge=1, le=1000)] = 4

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        yield from path_problems("fields", self.fields)
        if self.salt and not self.method.startswith("sha"):
            yield "salt", f"{self.method} does not use a salt", "choose sha256 or sha512"

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Masks the fields that a record has."""
        return rows.edit(lambda fields: edit(fields, dict.fromkeys(self.fields, self._mask)), turn)

    def _mask(self, value: Column) -> Column:
        return F.when(is_empty(value), value).otherwise(variant(self._masked(text(value))))

    def _masked(self, plain: Column) -> Column:
        length, keep = F.length(plain), F.lit(self.keep)
        stars = F.repeat(F.lit("*"), F.when(length > keep, length - keep).otherwise(length))
        match self.method:
            case "redact":
                return F.lit(self.replacement)
            case "sha256" | "sha512":
                salted = F.concat(F.lit(self.salt), plain) if self.salt else plain
                return F.sha2(salted, int(self.method[3:]))
            case "keep_last":
                shown = F.when(length > keep, F.right(plain, keep)).otherwise(F.lit(""))
                return F.concat(stars, shown)
            case "keep_first":
                shown = F.when(length > keep, F.left(plain, keep)).otherwise(F.lit(""))
                return F.concat(shown, stars)
            case "null":
                return F.lit(None)


class SetNull(Step, frozen=True, kw_only=True):
    """Sets fields to null: always, if they are empty strings, or if they have a certain value."""

    fields: tuple[str, ...]
    condition: Literal["always", "if_empty"] | dict[Literal["equals", "matches"], Any] = "always"

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        yield from path_problems("fields", self.fields)
        if isinstance(self.condition, str):
            return
        if len(self.condition) != 1:
            yield "condition", "exactly one of equals and matches is required", ""
        pattern = self.condition.get("matches", "")
        if not isinstance(pattern, str):
            yield "condition.matches", "a regular expression is required", ""
        elif problem_text := pattern_problem(pattern):
            yield "condition.matches", problem_text, ""

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Sets the fields that a record has to null."""
        return rows.edit(lambda fields: edit(fields, dict.fromkeys(self.fields, self._null)), turn)

    def _null(self, value: Column) -> Column:
        if self.condition == "always":
            return json_null()
        if self.condition == "if_empty":
            met = F.to_json(value) == '""'
        elif "equals" in self.condition:
            assert isinstance(self.condition, dict)
            met = equals(value, self.condition["equals"])
        else:
            assert isinstance(self.condition, dict)
            met = text(value).rlike(whole(self.condition["matches"]))
        return F.when(met, json_null()).otherwise(value)
