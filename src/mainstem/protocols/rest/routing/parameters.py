"""Parameters in a path or a query: parsed strictly, described by the same object that parses them.

``limit=abc`` is refused with a reason. Unknown and repeated names are refused as well, because a
misspelt parameter would otherwise be ignored silently.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from difflib import get_close_matches

from starlette.requests import Request

from mainstem.protocols.rest.errors import HttpError, bad_request

_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
_SHOWN_LENGTH_MAX = 100

Schema = dict[str, object]


class Parameter:
    """One parameter of the query; subclasses define its type."""

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self.description = description

    def text(self, request: Request) -> str | None:
        """The unparsed value, or None."""
        return request.query_params.get(self.name)

    def schema(self) -> Schema:
        """The JSON schema of the value."""
        return {"type": "string"}

    def refused(self, text: str, allowed: str) -> HttpError:
        """The error for a value that is not allowed."""
        shown = text[:_SHOWN_LENGTH_MAX]
        return bad_request(
            f"{self.name}={shown!r} is not allowed", subject=self.name, remedy=f"allowed: {allowed}"
        )


class TextParameter(Parameter):
    """Any text."""

    def of(self, request: Request) -> str | None:
        """The text, or None."""
        return self.text(request)


class IntegerParameter(Parameter):
    """An integer between two inclusive bounds."""

    def __init__(self, name: str, description: str, *, at_least: int, at_most: int) -> None:
        super().__init__(name, description)
        self.at_least = at_least
        self.at_most = at_most

    def of(self, request: Request) -> int | None:
        """The number, or None."""
        text = self.text(request)
        if text is None:
            return None
        number = whole_number(text)
        if number is None or not self.at_least <= number <= self.at_most:
            raise self.refused(text, f"a whole number from {self.at_least} to {self.at_most}")
        return number

    def schema(self) -> Schema:
        """A bounded integer."""
        return {"type": "integer", "minimum": self.at_least, "maximum": self.at_most}


class ChoiceParameter(Parameter):
    """One of a fixed set of words."""

    def __init__(self, name: str, description: str, choices: tuple[str, ...]) -> None:
        super().__init__(name, description)
        self.choices = choices

    def of(self, request: Request) -> str:
        """The word; the first one by default."""
        text = self.text(request)
        if text is None:
            return self.choices[0]
        if text not in self.choices:
            raise self.refused(text, ", ".join(self.choices))
        return text

    def schema(self) -> Schema:
        """The schema: one of the allowed words."""
        return {"type": "string", "enum": list(self.choices), "default": self.choices[0]}


class TimeParameter(Parameter):
    """A time: milliseconds since 1970, or ISO 8601 (UTC unless it has an offset)."""

    def of(self, request: Request) -> int | None:
        """Milliseconds since 1970, or None."""
        text = self.text(request)
        if text is None:
            return None
        number = whole_number(text)
        if number is not None and 0 <= number <= LONG_MAX:
            return number
        try:
            # A plus sign in a query is a space unless the client wrote it as %2B.
            moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return max(0, int(moment.timestamp() * 1000))
        except (ValueError, OverflowError):
            raise self.refused(
                text, "milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z"
            ) from None

    def schema(self) -> Schema:
        """A number or a date."""
        return {"oneOf": [{"type": "integer"}, {"type": "string", "format": "date-time"}]}


class OffsetParameter(Parameter):
    """An offset, ``earliest``, ``latest``, or a negative number that counts back from the end."""

    def of(self, request: Request) -> int | str | None:
        """The number or the word, or None."""
        text = self.text(request)
        if text is None or text in ("earliest", "latest"):
            return text
        number = whole_number(text)
        if number is None or not LONG_MIN <= number <= LONG_MAX:
            raise self.refused(text, "an offset, a negative number, earliest or latest")
        return number

    def schema(self) -> Schema:
        """A number or one of two words."""
        words = {"type": "string", "enum": ["earliest", "latest"]}
        return {"oneOf": [{"type": "integer", "format": "int64"}, words]}


def whole_number(text: str) -> int | None:
    """Parse ASCII digits as an integer; None for anything else."""
    return int(text) if _INTEGER.fullmatch(text) else None


def check_names(request: Request, parameters: Iterable[Parameter]) -> None:
    """Refuse a query with an unknown or repeated parameter."""
    known = {parameter.name for parameter in parameters}
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name in seen:
            raise bad_request("a parameter is given twice", subject=name[:_SHOWN_LENGTH_MAX])
        seen.add(name)
        if name in known:
            continue
        near = get_close_matches(name[:_SHOWN_LENGTH_MAX], known, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
        raise bad_request(
            "unknown query parameter",
            subject=name[:_SHOWN_LENGTH_MAX],
            remedy=remedy if known else "this path takes no parameters",
        )
