"""Steps that filter records and choose their topics."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from msgspec import UNSET, Struct, UnsetType
from pyspark.sql import Column
from pyspark.sql import functions as F

from mainstem.pipelines.transforms.conditions import parse_condition
from mainstem.pipelines.transforms.fields import false, text, value_at
from mainstem.pipelines.transforms.paths import is_path
from mainstem.pipelines.transforms.predicate import (
    StepProblem,
    equals,
    path_problem,
    pattern_problem,
    whole,
)
from mainstem.pipelines.transforms.rows import Rows, StepContext, row_fields
from mainstem.pipelines.transforms.step import Step

ROUTES_MAX: Final = 1000
_TOPIC: Final = r"^[A-Za-z0-9._-]{1,249}\z"
_ASKED: Final = "__asked_"
_HOLE: Final = re.compile(r"\{([^{}]*)\}")


class Filter(Step, frozen=True, kw_only=True):
    """Keeps the records for which a condition is true, or with ``drop: true`` drops them.

    Tombstones have no fields and always pass.
    """

    condition: str
    drop: bool = False

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        return _condition_problems("condition", self.condition)

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Drops the filtered records."""
        met = parse_condition(self.condition).column(row_fields())
        unwanted = met if self.drop else ~met
        return rows.drop(turn, unwanted & row_fields().isNotNull())


class RoutedField(NamedTuple):
    """A field that several routes use, looked up once per record."""

    value: Column
    plain: Column


class ContentRoute(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A route: ``field`` with ``value`` or ``pattern``, or any condition as ``when``."""

    topic: str
    field: str | None = None
    value: Any | UnsetType = UNSET
    pattern: str | None = None
    when: str | None = None

    def problems(self) -> Iterator[StepProblem]:
        """Problems that the types of the settings do not express."""
        yield from topic_problems("topic", self.topic)
        given = [self.value is not UNSET, self.pattern is not None, self.when is not None]
        if sum(given) != 1:
            yield "", "exactly one of value, pattern and when is required", ""
        if (self.field is None) != (self.when is not None):
            yield "field", "field is used with value and pattern, not with when", ""
        if self.field is not None and (problem_text := path_problem(self.field)):
            yield "field", problem_text, ""
        if self.pattern is not None and (problem_text := pattern_problem(self.pattern)):
            yield "pattern", problem_text, ""
        if self.when is not None:
            yield from _condition_problems("when", self.when)

    def column(self, fields: Column, asked: Mapping[str, RoutedField]) -> Column:
        """Whether a record matches this route; ``asked`` has fields that were already looked up."""
        if self.when is not None:
            return parse_condition(self.when).column(fields)
        assert self.field is not None, "checked by problems"
        found = value_at(fields, self.field)
        value, plain = asked.get(self.field) or RoutedField(found, text(found))
        if self.pattern is not None:
            return plain.rlike(whole(self.pattern))
        return equals(value, self.value, plain=plain)


class ContentRouter(Step, frozen=True, kw_only=True):
    """Chooses the topic by the content of a record; the first matching route is used.

    A topic may contain fields in braces: ``orders.{country}``. Without a matching route and without
    ``default_topic`` the topic is unchanged. A record whose topic would be invalid fails.
    """

    routes: tuple[ContentRoute, ...] = ()
    default_topic: str | None = None

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        yield from _route_problems(self.routes, self.default_topic)
        if self.default_topic is not None:
            yield from topic_problems("default_topic", self.default_topic)

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Sets the topic."""
        fields = row_fields()
        last = F.col("topic")
        if self.default_topic is not None:
            last = topic_of(self.default_topic, fields)
        columns, asked = self._asked(fields)
        if columns:
            rows = rows.beside(columns)
        chosen: Column | None = None
        for route in self.routes:
            topic = topic_of(route.topic, fields)
            chosen = (F if chosen is None else chosen).when(route.column(fields, asked), topic)
        topic = last if chosen is None else chosen.otherwise(last)
        # A tombstone has no fields: its topic is unchanged.
        topic = F.when(fields.isNull(), F.col("topic")).otherwise(topic)
        templates = [route.topic for route in self.routes] + [self.default_topic or ""]
        rows = route_to(rows, topic, turn, checked=any("{" in one for one in templates))
        return rows.without(*columns)

    def _asked(self, fields: Column) -> tuple[dict[str, Column], dict[str, RoutedField]]:
        """Columns of the fields that more than one route uses, and references to them."""
        counted = Counter(route.field for route in self.routes if route.field is not None)
        columns: dict[str, Column] = {}
        asked: dict[str, RoutedField] = {}
        for name in (name for name, count in counted.items() if count > 1):
            value, plain = f"{_ASKED}{len(columns)}", f"{_ASKED}{len(columns) + 1}"
            found = value_at(fields, name)
            columns |= {value: found, plain: text(found)}
            asked[name] = RoutedField(F.col(value), F.col(plain))
        return columns, asked


class RegexRoute(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pattern of topics and their new topic; ``$1`` is the first group of the pattern."""

    pattern: str
    topic: str

    def problems(self) -> Iterator[StepProblem]:
        """Problems that the types of the settings do not express."""
        if problem_text := pattern_problem(self.pattern):
            yield "pattern", problem_text, ""
            return
        groups = re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", self.pattern)).groups
        asked = [int(number) for number in re.findall(r"\$(\d)", self.topic)]
        if max(asked, default=0) > groups:
            yield "topic", f"${max(asked)} is used, but the pattern has {groups} groups", ""
        if not re.match(_TOPIC.replace(r"\z", r"\Z"), re.sub(r"\$\d", "x", self.topic)):
            yield (
                "topic",
                f"{self.topic!r} is not a topic name",
                "use letters, digits, dot, dash, underscore",
            )


class RegexRouter(Step, frozen=True, kw_only=True):
    """Chooses the topic by the current topic; patterns match completely, the first match is used.

    Without a matching route and without ``default_topic`` the topic is unchanged.
    """

    needs_fields: ClassVar[bool] = False
    routes: tuple[RegexRoute, ...] = ()
    default_topic: str | None = None

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        yield from _route_problems(self.routes, self.default_topic)

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Sets the topic."""
        topic = F.col("topic")
        last = topic if self.default_topic is None else F.lit(self.default_topic)
        chosen: Column | None = None
        for route in self.routes:
            pattern = whole(route.pattern)
            renamed = F.regexp_replace(topic, F.lit(pattern), F.lit(route.topic))
            chosen = (F if chosen is None else chosen).when(topic.rlike(pattern), renamed)
        routed = last if chosen is None else chosen.otherwise(last)
        return route_to(rows, routed, turn, checked=any("$" in one.topic for one in self.routes))


def topic_of(template: str, fields: Column) -> Column:
    """A topic with the fields in braces filled in; null if one is absent or null."""
    parts: list[Column] = []
    position = 0
    for hole in _HOLE.finditer(template):
        parts.append(F.lit(template[position : hole.start()]))
        parts.append(text(value_at(fields, hole[1])))
        position = hole.end()
    parts.append(F.lit(template[position:]))
    return F.concat(*parts) if len(parts) > 1 else parts[0]


def route_to(rows: Rows, topic: Column, turn: StepContext, *, checked: bool) -> Rows:
    """Sends records to a topic; with ``checked`` those with an invalid topic name fail."""
    if checked:
        illegal = ~F.coalesce(topic.rlike(_TOPIC), false())
        illegal = F.when(topic.eqNullSafe(F.col("topic")), false()).otherwise(illegal)
        problem_text = F.concat(
            F.lit("the route gives an invalid topic name: "), F.coalesce(topic, F.lit("null"))
        )
        rows = rows.fail(turn, illegal, F.substring(problem_text, 1, 400))
    return rows.with_columns({"topic": topic}, turn)


def topic_problems(where: str, template: str) -> Iterator[StepProblem]:
    """The problems of a topic that may contain fields."""
    for name in _HOLE.findall(template):
        if not is_path(name):
            yield where, f"{{{name}}} is not a field", ""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", _HOLE.sub("x", template)):
        yield (
            where,
            f"{template!r} is not a topic name",
            "use letters, digits, dot, dash, underscore",
        )


def _route_problems(
    routes: Sequence[ContentRoute | RegexRoute], default_topic: str | None
) -> Iterator[StepProblem]:
    if not routes and default_topic is None:
        yield "routes", "no route is defined", ""
    if len(routes) > ROUTES_MAX:
        yield "routes", f"more than {ROUTES_MAX} routes", "use several steps"
    for index, route in enumerate(routes):
        for where, problem_text, remedy in route.problems():
            yield f"routes[{index}].{where}".rstrip("."), problem_text, remedy


def _condition_problems(where: str, source: str) -> Iterator[StepProblem]:
    try:
        parse_condition(source)
    except ValueError as error:
        yield where, str(error), "for example: status = active and amount > 100"
