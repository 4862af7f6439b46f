"""New passwords: prompted for twice, read from a file or standard input, or generated."""

import getpass
import secrets
import sys
from typing import Annotated

import typer

from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.access import read_secret

GENERATED_BYTES = 18

File = Annotated[
    str | None,
    typer.Option(
        "--new-password-file", metavar="FILE", help="File whose first line is the new password."
    ),
]
Stdin = Annotated[
    bool, typer.Option("--stdin", help="The first line of the input is the new password.")
]
Generate = Annotated[
    bool, typer.Option("--generate", help="Generate a random password and print it.")
]


def new_password(user: str, file: str | None, *, stdin: bool, generate: bool) -> str:
    """The new password of a user.

    Raises:
        UsageFailure: it is given in several ways, or in none without a terminal to prompt on.
    """
    if sum((file is not None, stdin, generate)) > 1:
        raise UsageFailure("--new-password-file, --stdin and --generate exclude each other")
    if generate:
        return secrets.token_urlsafe(GENERATED_BYTES)
    if file is not None:
        return read_secret(file)
    if stdin:
        given = sys.stdin.readline().rstrip("\r\n")
        if not given:
            raise UsageFailure("the input is empty", subject=user)
        return given
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageFailure(
            "no password is given, and there is no terminal to prompt on",
            subject=user,
            remedy="--new-password-file FILE, --stdin or --generate",
        )
    given = getpass.getpass(f"New password of {user}: ", stream=sys.stderr)
    if getpass.getpass("Repeat it: ", stream=sys.stderr) != given:
        raise UsageFailure("the two passwords differ", subject=user)
    return given
