"""Decisions that are remembered, so that a command which its sender repeats is decided once.

A sender that does not know the outcome of a command sends it again under the same id, perhaps to
another leader. The decision's facts and the ``CommandDecided`` that names the id are recorded in
one entry, so that whoever decides next has either both or neither. ``SealAndCreate`` needs none of
this: the catalogue keeps its ``request_id`` with the stream.
"""

from typing import Any, Final, TypeVar

import msgspec

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.limits import COMMAND_REPLY_REMEMBERED_BYTES_MAX
from mainstem.model.metadata import Stream, Topic
from mainstem.placement.fact import Command, reply_type
from mainstem.placement.records import CommandDecided, SealAndCreate
from mainstem.placement.tables import Tables

ReplyT = TypeVar("ReplyT")

REMEMBERING_LEVEL: Final = 2
"""From this level of ``mainstem.version`` on, every node can decode what is written here."""


def can_be_repeated(tables: Tables, command: Command[Any]) -> bool:
    """Whether a command may be sent again under its id while its outcome is unknown."""
    return isinstance(command, SealAndCreate) or tables.level >= REMEMBERING_LEVEL


def remember(
    tables: Tables, command: Command[ReplyT], command_id: str, reply: ReplyT
) -> CommandDecided | None:
    """The fact that names a decided command; None: this one is not to be remembered."""
    if not command_id or isinstance(command, SealAndCreate) or tables.level < REMEMBERING_LEVEL:
        return None
    fact = CommandDecided(command_id, type(command).__name__)
    if isinstance(reply, Topic):
        return msgspec.structs.replace(fact, topic=reply.id)
    if isinstance(reply, Stream):
        return msgspec.structs.replace(fact, streams=(reply.id,))
    if isinstance(reply, tuple) and reply and isinstance(reply[0], Stream):
        return msgspec.structs.replace(fact, streams=tuple(stream.id for stream in reply))
    value = msgspec.msgpack.encode(reply)
    if len(value) > COMMAND_REPLY_REMEMBERED_BYTES_MAX:
        return msgspec.structs.replace(fact, dropped=True)
    return msgspec.structs.replace(fact, value=value)


def remembered_reply(tables: Tables, command: Command[ReplyT], known: CommandDecided) -> Any:
    """What a command that was decided before is answered with now.

    Raises:
        Unavailable: the reply was too large to be kept.
        InvalidRequest: what it was about is gone, or another command has that id.
    """
    if known.kind != type(command).__name__:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, f"the id belongs to a {known.kind}", subject=known.id
        )
    if known.dropped:
        raise Unavailable(
            ErrorCode.TIMED_OUT,
            "the command was decided before and its reply was too large to be kept",
            remedy="read the state instead of repeating the command",
        )
    if known.topic is not None:
        return tables.need_topic(known.topic)
    expected = reply_type(type(command))
    if expected is Stream:
        return tables.need_stream(known.streams[0])
    if expected == tuple[Stream, ...]:
        return tuple(tables.need_stream(stream) for stream in known.streams)
    return msgspec.msgpack.decode(known.value or b"\xc0", type=expected)
