"""Remembered decisions, so that a command which its sender repeats is decided once.

A sender that does not know the outcome of a command sends it again under the same id, perhaps to
another leader. The decision's facts and the ``CommandDecided`` that names the id are recorded in
one entry, so that the next leader has either both or neither. A reply that is a topic or a
stream is kept as a reference while the topic exists, and as a value once it is deleted: a command
that was carried out is never answered with a refusal. ``SealAndCreate`` needs none of this: the
catalogue keeps its ``request_id`` with the stream.
"""

from typing import Any, Final, TypeVar

import msgspec

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.limits import COMMAND_REPLY_REMEMBERED_BYTES_MAX
from mainstem.model.metadata import Stream, Topic
from mainstem.placement.changes.command_and_fact import Command, reply_type
from mainstem.placement.changes.commands import CommandDecided, SealAndCreate
from mainstem.placement.state.tables import CatalogueTables

ReplyT = TypeVar("ReplyT")

REMEMBERING_LEVEL: Final = 2
"""From this level of ``mainstem.version`` on, every node can decode ``CommandDecided``."""


def can_be_repeated(tables: CatalogueTables, command: Command[Any]) -> bool:
    """Whether a command may be sent again under its id while its outcome is unknown."""
    return isinstance(command, SealAndCreate) or tables.level >= REMEMBERING_LEVEL


def remember(
    tables: CatalogueTables, command: Command[ReplyT], command_id: str, reply: ReplyT
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
    return _with_value(fact, msgspec.msgpack.encode(reply))


def without_references(tables: CatalogueTables, deleted: Topic) -> list[CommandDecided]:
    """The remembered decisions that refer to a topic, with its last state as their reply.

    Called before the topic is removed, as part of replay: every node keeps the same.
    """
    topic = deleted.id
    found = [
        known
        for known in tables.decided.values()
        if known.topic == topic or any(stream.topic == topic for stream in known.streams)
    ]
    if not found:
        return []
    as_value = msgspec.msgpack.encode(deleted)
    return [_with_value(known, _streams_of(tables, known) or as_value) for known in found]


def _streams_of(tables: CatalogueTables, known: CommandDecided) -> bytes | None:
    if not known.streams:
        return None
    return msgspec.msgpack.encode(tuple(tables.need_stream(stream) for stream in known.streams))


def _with_value(fact: CommandDecided, value: bytes) -> CommandDecided:
    """The reply as bytes, instead of references; dropped if it is too large to be kept."""
    bare = CommandDecided(fact.id, fact.kind)
    if len(value) > COMMAND_REPLY_REMEMBERED_BYTES_MAX:
        return msgspec.structs.replace(bare, dropped=True)
    return msgspec.structs.replace(bare, value=value)


def deduplicated_reply(
    tables: CatalogueTables, command: Command[ReplyT], known: CommandDecided
) -> Any:
    """The reply to a command that was decided before.

    Raises:
        Unavailable: the reply was too large to be kept.
        InvalidRequest: another command has that id.
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
    expected = reply_type(type(command))
    if known.topic is not None:
        return tables.need_topic(known.topic)
    if expected is Stream or expected == tuple[Stream, ...]:
        streams = _kept_streams(tables, known)
        return streams[0] if expected is Stream else streams
    return msgspec.msgpack.decode(known.value or b"\xc0", type=expected)


def _kept_streams(tables: CatalogueTables, known: CommandDecided) -> tuple[Stream, ...]:
    if known.value is not None:
        return msgspec.msgpack.decode(known.value, type=tuple[Stream, ...])
    return tuple(tables.need_stream(stream) for stream in known.streams)
