"""The syntax of conditions: ``status = active and (amount >= 100 or vip is_not_null)``.

    condition   = any { "or" any }
    any         = one { "and" one }
    one         = "not" one | "(" condition ")" | test
    test        = field ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) literal
                | field "matches" regex
                | field [ "not" ] "in" "(" literal { "," literal } ")"
                | field ( "is_null" | "is_not_null" | "exists" )

A literal is a word, a number or a string in single or double quotes. A number compares as a number,
everything else as text. A test of a field that is absent or null is false, except for ``!=``,
``not in`` and ``is_null``. A regular expression extends to the end of the condition or is in
quotes, and must match the whole value.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Final, NamedTuple

from msgspec import Struct
from pyspark.sql import Column
from pyspark.sql import functions as F

from mainstem.pipelines.transforms.fields import false, has, is_empty, is_string, text, value_at
from mainstem.pipelines.transforms.paths import parse_path
from mainstem.pipelines.transforms.predicate import pattern_problem, whole

NESTING_MAX: Final = 50
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|(?P<sign><=|>=|!=|<>|==|=|<|>|\(|\)|,)"""
    r"""|(?P<word>(?:\['[^']+'\]|\["[^"]+"\]|[^\s=<>!(),'"])+))"""
)
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d{1,3})?")
_COMPARISONS: Final[dict[str, Callable[[Column, Column], Column]]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_KEYWORDS: Final = {"and", "or", "not", "in", "matches", "is_null", "is_not_null", "exists"}


class Literal(NamedTuple):
    """A literal in a condition; ``number`` if it is one and was not quoted."""

    text: str
    number: Decimal | None


class Comparison(Struct, frozen=True):
    """A test of one field."""

    field: str
    sign: str
    literals: tuple[Literal, ...] = ()

    def column(self, fields: Column) -> Column:
        """Whether it is true; never null."""
        value = value_at(fields, self.field)
        match self.sign:
            case "is_null":
                return is_empty(value)
            case "is_not_null":
                return ~is_empty(value)
            case "exists":
                return has(fields, self.field)
            case "matches":
                met = text(value).rlike(whole(self.literals[0].text))
            case "in":
                met = reduce(Column.__or__, (_compared(value, "=", one) for one in self.literals))
            case "!=" | "<>":
                return ~_known(_compared(value, "=", self.literals[0]))
            case sign:
                met = _compared(value, sign, self.literals[0])
        return _known(met)


class Not(Struct, frozen=True):
    """Negates a condition."""

    of: "Condition"

    def column(self, fields: Column) -> Column:
        """Whether it is true; never null."""
        return ~self.of.column(fields)


class ConditionList(Struct, frozen=True):
    """All of several conditions, or with ``any`` at least one."""

    parts: "tuple[Condition, ...]"
    any: bool = False

    def column(self, fields: Column) -> Column:
        """Whether it is true; never null."""
        columns = (part.column(fields) for part in self.parts)
        return reduce(Column.__or__ if self.any else Column.__and__, columns)


Condition = Comparison | Not | ConditionList


def parse_condition(source: str) -> Condition:
    """Parses a condition.

    Raises:
        ValueError: it is invalid; the message contains the position.
    """
    reader = _ConditionParser(source)
    condition = reader.condition()
    if (token := reader.peek()) is not None:
        raise ValueError(f"{token!r} is unexpected")
    return condition


class _ConditionParser:
    """Recursive descent over the tokens."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._position = 0
        self._depth = 0

    def condition(self) -> Condition:
        parts = [self._all()]
        while self._take("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else ConditionList(tuple(parts), any=True)

    def peek(self) -> str | None:
        found = self._match()
        return None if found is None else found[0].strip()

    def _all(self) -> Condition:
        parts = [self._one()]
        while self._take("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else ConditionList(tuple(parts))

    def _one(self) -> Condition:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise ValueError(f"nested more than {NESTING_MAX} levels deep")
        if self._take("not"):
            found: Condition = Not(self._one())
        elif self._take("("):
            found = self.condition()
            self._expect(")")
        else:
            found = self._test()
        self._depth -= 1
        return found

    def _test(self) -> Condition:
        field = self._next("the name of a field")
        if field.lower() in _KEYWORDS:
            raise ValueError(f"the name of a field is missing before {field!r}")
        parse_path(field)
        sign = self._next(f"a comparison after {field!r}").lower()
        if sign in {"is_null", "is_not_null", "exists"}:
            return Comparison(field, sign)
        if sign == "matches":
            return Comparison(field, sign, (Literal(self._pattern(), None),))
        if sign == "not" and self._take("in"):
            return Not(Comparison(field, "in", self._list()))
        if sign == "in":
            return Comparison(field, sign, self._list())
        if sign in _COMPARISONS or sign in {"!=", "<>"}:
            return Comparison(field, sign, (self._literal(),))
        raise ValueError(
            f"{sign!r} is not an operator; use one of = != < <= > >= matches in is_null"
        )

    def _list(self) -> tuple[Literal, ...]:
        self._expect("(")
        found = [self._literal()]
        while self._take(","):
            found.append(self._literal())
        self._expect(")")
        return tuple(found)

    def _literal(self) -> Literal:
        found = self._match()
        if found is None or found["sign"]:
            raise ValueError(f"a value is missing at {self._rest()!r}")
        self._position = found.end()
        if found["quoted"]:
            return Literal(_unquoted(found["quoted"]), None)
        word = found["word"]
        if word.lower() == "null":
            raise ValueError("no value equals null; use is_null or is_not_null")
        return Literal(word, Decimal(word) if _NUMBER.fullmatch(word) else None)

    def _pattern(self) -> str:
        found = self._match()
        if found is not None and found["quoted"]:
            self._position = found.end()
            pattern = _unquoted(found["quoted"])
        else:
            pattern = self._rest()
            self._position = len(self._source)
        if not pattern:
            raise ValueError("a regular expression is missing after matches")
        if problem_text := pattern_problem(pattern):
            raise ValueError(problem_text)
        return pattern

    def _next(self, wanted: str) -> str:
        found = self._match()
        if found is None:
            raise ValueError(f"{wanted} is missing at the end")
        self._position = found.end()
        return found[0].strip()

    def _take(self, word: str) -> bool:
        found = self._match()
        if found is None or found["quoted"] or found[0].strip().lower() != word:
            return False
        self._position = found.end()
        return True

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise ValueError(f"{sign!r} is missing at {self._rest()!r}")

    def _match(self) -> re.Match[str] | None:
        if not self._rest():
            return None
        found = _TOKEN.match(self._source, self._position)
        if found is None:
            raise ValueError(f"syntax error at {self._rest()!r}")
        return found

    def _rest(self) -> str:
        return self._source[self._position :].strip()


def _compared(value: Column, sign: str, literal: Literal) -> Column:
    compare = _COMPARISONS[sign]
    if literal.number is None:
        return compare(text(value), F.lit(literal.text))
    # Strings are compared too if they are numeric: many systems quote numbers.
    number = F.when(is_string(value), F.trim(text(value)).try_cast("decimal(38,15)")).otherwise(
        F.try_variant_get(value, "$", "decimal(38,15)")
    )
    exact = F.lit(str(literal.number)).try_cast("decimal(38,15)")
    rough = compare(F.try_variant_get(value, "$", "double"), F.lit(float(literal.number)))
    return F.when(exact.isNull() | number.isNull(), rough).otherwise(compare(number, exact))


def _known(met: Column) -> Column:
    return F.coalesce(met, false())


def _unquoted(quoted: str) -> str:
    return re.sub(r"\\(['\"\\])", r"\1", quoted[1:-1])
