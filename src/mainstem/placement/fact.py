"""What commands and facts have in common: see ``records``."""

from typing import Generic, TypeVar

from msgspec import Struct

ReplyT = TypeVar("ReplyT")


class Command(Struct, Generic[ReplyT], frozen=True, tag_field="type", tag=True):
    """Something to be decided; the type parameter is the reply."""


class Fact(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag=True):
    """Something that happened. Replaying it is the only way the catalogue changes."""
