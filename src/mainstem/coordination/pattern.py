"""Regular expressions that clients send, matched in time linear in the length of the text.

RE2 is what Kafka uses: users know the syntax, and no expression can block the node by
backtracking.
"""

from collections.abc import Callable

import re2

from mainstem.model.errors import ErrorCode, InvalidRequest

PATTERN_LENGTH_MAX = 4_096
_PROGRAM_BYTES_MAX = 1 << 20

Matches = Callable[[str], bool]


def compile_pattern(text: str) -> Matches:
    """Compile an expression; returns a function that tests whether it matches a whole text.

    Raises:
        InvalidRequest: the expression is invalid or needs too much memory.
    """
    if len(text) > PATTERN_LENGTH_MAX:
        raise _invalid(f"{len(text)} characters exceed the limit of {PATTERN_LENGTH_MAX}")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PROGRAM_BYTES_MAX
    try:
        compiled = re2.compile(text, options)
    except re2.error as error:
        [reason] = error.args or (b"",)
        cause = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise _invalid(cause) from error

    def matches(candidate: str) -> bool:
        return compiled.fullmatch(candidate) is not None

    return matches


def _invalid(cause: str) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.INVALID_PATTERN,
        f"invalid regular expression: {cause}",
        remedy="use RE2 syntax",
    )
