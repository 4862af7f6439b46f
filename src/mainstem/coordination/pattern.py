"""Regular expressions that clients send, in time that grows with the text and no faster.

Kafka matches them with RE2, and so do we: the syntax is the one its users know, and no expression
can keep the node busy as backtracking ones can.
"""

from collections.abc import Callable

import re2

from mainstem.model.errors import ErrorCode, InvalidRequest

PATTERN_LENGTH_MAX = 4_096
_PROGRAM_BYTES_MAX = 1 << 20

Matches = Callable[[str], bool]


def compile_pattern(text: str) -> Matches:
    """A test for texts that match the expression as a whole.

    Raises:
        InvalidRequest: it is no expression, or needs too much memory.
    """
    if len(text) > PATTERN_LENGTH_MAX:
        raise _invalid(f"{len(text)} characters where {PATTERN_LENGTH_MAX} are allowed")
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
        f"not a regular expression: {cause}",
        remedy="use the syntax of RE2",
    )
