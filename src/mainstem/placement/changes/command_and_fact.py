"""What commands and facts have in common: see ``records``."""

from typing import Any, Generic, TypeVar, get_args

from msgspec import Struct

ReplyT = TypeVar("ReplyT")


class Command(Struct, Generic[ReplyT], frozen=True, tag_field="type", tag=True):
    """Something to be decided; the type parameter is the reply."""


class Fact(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag=True):
    """Something that happened. Replaying it is the only way the catalogue changes."""


def reply_type(kind: type[Command[Any]]) -> Any:
    """What a command is answered with: the parameter of its base."""
    [base] = [base for base in kind.__orig_bases__ if base.__origin__ is Command]  # type: ignore[attr-defined]
    [reply] = get_args(base)
    return reply
