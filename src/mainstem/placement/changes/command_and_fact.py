"""Base classes of commands and facts: see ``records``."""

from typing import Any, Generic, TypeVar, get_args

from msgspec import Struct

ReplyT = TypeVar("ReplyT")


class Command(Struct, Generic[ReplyT], frozen=True, tag_field="type", tag=True):
    """A request to change the catalogue; the type parameter is the reply."""


class Fact(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag=True):
    """A recorded change. Replaying it is the only way the catalogue changes."""


def reply_type(kind: type[Command[Any]]) -> Any:
    """The type of the reply to a command: the parameter of its base."""
    [base] = [base for base in kind.__orig_bases__ if base.__origin__ is Command]  # type: ignore[attr-defined]
    [reply] = get_args(base)
    return reply
