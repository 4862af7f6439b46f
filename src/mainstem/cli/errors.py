"""How a failed command ends: one message, one documented exit code.

The codes are part of the interface (docs/reference/cli.md): scripts may branch on them.
"""

import contextlib
import enum
import json
import os
import sys
from collections.abc import Iterator

from mainstem.model.errors import ErrorCode, MainstemError


class ExitCode(enum.IntEnum):
    """The exit codes of the command line."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNAVAILABLE = 5
    CORRUPT = 6
    BAD_CONFIGURATION = 7
    NOT_ALLOWED = 8
    INTERRUPTED = 130


class UsageFailure(MainstemError):
    """The command line is well formed, but its values are invalid or contradict each other."""

    def __init__(self, cause: str, *, subject: str = "", remedy: str = "") -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, cause, subject=subject, remedy=remedy)


_EXIT_CODES = {
    ErrorCode.UNKNOWN_TOPIC: ExitCode.NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID: ExitCode.NOT_FOUND,
    ErrorCode.UNKNOWN_GROUP: ExitCode.NOT_FOUND,
    ErrorCode.UNKNOWN_RESOURCE: ExitCode.NOT_FOUND,
    ErrorCode.UNKNOWN_TRANSACTION: ExitCode.NOT_FOUND,
    ErrorCode.UNKNOWN_TOKEN: ExitCode.NOT_FOUND,
    ErrorCode.UNKNOWN_NODE: ExitCode.NOT_FOUND,
    ErrorCode.TOPIC_EXISTS: ExitCode.CONFLICT,
    ErrorCode.GROUP_NOT_EMPTY: ExitCode.CONFLICT,
    ErrorCode.GROUP_SUBSCRIBED: ExitCode.CONFLICT,
    ErrorCode.INVALID_TXN_STATE: ExitCode.CONFLICT,
    ErrorCode.DUPLICATE_RESOURCE: ExitCode.CONFLICT,
    ErrorCode.CORRUPT: ExitCode.CORRUPT,
    ErrorCode.INVALID_CONFIG: ExitCode.BAD_CONFIGURATION,
    ErrorCode.AUTHENTICATION_FAILED: ExitCode.NOT_ALLOWED,
    ErrorCode.UNSUPPORTED_MECHANISM: ExitCode.NOT_ALLOWED,
    ErrorCode.NOT_AUTHORIZED: ExitCode.NOT_ALLOWED,
    ErrorCode.GROUP_NOT_AUTHORIZED: ExitCode.NOT_ALLOWED,
    ErrorCode.CLUSTER_NOT_AUTHORIZED: ExitCode.NOT_ALLOWED,
    ErrorCode.TRANSACTIONAL_ID_NOT_AUTHORIZED: ExitCode.NOT_ALLOWED,
    ErrorCode.TOKEN_NOT_AUTHORIZED: ExitCode.NOT_ALLOWED,
    ErrorCode.TOKEN_OWNER_MISMATCH: ExitCode.NOT_ALLOWED,
    ErrorCode.TOKEN_REQUEST_REFUSED: ExitCode.NOT_ALLOWED,
    ErrorCode.TOKEN_EXPIRED: ExitCode.NOT_ALLOWED,
}

_PERMISSION = "request the permission, or log in as a user who has it"

# Used where the error has no remedy of its own.
_REMEDIES = {
    ErrorCode.NOT_AUTHORIZED: _PERMISSION,
    ErrorCode.GROUP_NOT_AUTHORIZED: _PERMISSION,
    ErrorCode.CLUSTER_NOT_AUTHORIZED: _PERMISSION,
    ErrorCode.TRANSACTIONAL_ID_NOT_AUTHORIZED: _PERMISSION,
    ErrorCode.TOKEN_NOT_AUTHORIZED: _PERMISSION,
    ErrorCode.TOKEN_OWNER_MISMATCH: _PERMISSION,
    ErrorCode.TOKEN_REQUEST_REFUSED: "log in with a password or a certificate",
    ErrorCode.UNKNOWN_RESOURCE: "check the name; the command `list` shows all",
    ErrorCode.UNKNOWN_TOKEN: "check the id; the commands `list` and `describe` show all",
    ErrorCode.SECURITY_DISABLED: "set security.authorise of the node to on",
}


def exit_code(error: MainstemError) -> ExitCode:
    """The exit code of an error; UNAVAILABLE if a retry may help."""
    if isinstance(error, UsageFailure):
        return ExitCode.USAGE
    if (known := _EXIT_CODES.get(error.code)) is not None:
        return known
    return ExitCode.UNAVAILABLE if error.retriable else ExitCode.FAILED


def report(error: MainstemError, *, as_json: bool) -> None:
    """Write code, subject, cause and remedy of an error to standard error."""
    remedy = error.remedy or _REMEDIES.get(error.code, "")
    if as_json:
        fields = {
            "code": error.code.name,
            "subject": error.subject,
            "cause": error.cause,
            "remedy": remedy,
            "retriable": error.retriable,
            "exit_code": int(exit_code(error)),
        }
        print(json.dumps({"error": fields}), file=sys.stderr)
        return
    subject = f" [{error.subject}]" if error.subject else ""
    print(f"error: {error.code.name}{subject}: {error.cause or 'refused'}", file=sys.stderr)
    if remedy:
        print(f"help:  {remedy}", file=sys.stderr)


@contextlib.contextmanager
def exit_on_broken_pipe() -> Iterator[None]:
    """Exit with 0 when the reader of our output closes it, as in ``consume ... | head``."""
    try:
        yield
    except BrokenPipeError:
        # The interpreter flushes what is still buffered when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.OK)
