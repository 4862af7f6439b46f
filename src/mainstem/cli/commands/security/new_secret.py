"""New passwords: asked for twice, read from a file or from standard input, or drawn at random."""

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
    typer.Option("--new-password-file", metavar="FILE", help="Its first line is the new password."),
]
Stdin = Annotated[
    bool, typer.Option("--stdin", help="The first line of the input is the new password.")
]
Generate = Annotated[
    bool, typer.Option("--generate", help="Draw a password at random and print it.")
]


def new_password(user: str, file: str | None, *, stdin: bool, generate: bool) -> str:
    """The new password of a user.

    Raises:
        UsageFailure: it is said in several ways, or nobody can be asked.
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
            "no password is given, and nobody can be asked",
            subject=user,
            remedy="--new-password-file FILE, --stdin or --generate",
        )
    given = getpass.getpass(f"New password of {user}: ", stream=sys.stderr)
    if getpass.getpass("Once more: ", stream=sys.stderr) != given:
        raise UsageFailure("the two passwords differ", subject=user)
    return given
