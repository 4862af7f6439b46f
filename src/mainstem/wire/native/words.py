"""Types that both sides of the native protocol share, and their encoding.

A body is one msgpack map; ``type`` is the type of the message. Absent fields have their default,
unknown fields are skipped, so that newer sides can send more to older ones. Times are milliseconds
since 1970, durations milliseconds.
"""

from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from mainstem.model.decode_errors import DECODE_ERRORS

MESSAGES_PER_FRAME_MAX: Final = 4_096
HEADERS_PER_MESSAGE_MAX: Final = 256
NUMBERS_PER_FRAME_MAX: Final = 100_000
NAMES_PER_FRAME_MAX: Final = 1_024

AnyWord = TypeVar("AnyWord")
Count = Annotated[int, Meta(ge=0, le=2**53)]
Id = Annotated[int, Meta(ge=0, le=2**32 - 1)]
HeaderList = Annotated[list[tuple[str, bytes | None]], Meta(max_length=HEADERS_PER_MESSAGE_MAX)]
Numbers = Annotated[list[Count], Meta(max_length=NUMBERS_PER_FRAME_MAX)]


class NotAWord(Exception):
    """The body of a frame is invalid; the frames after it may be valid."""


def kebab(name: str) -> str:
    """``DeclareQueue`` is ``declare-queue`` on the wire."""
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).removeprefix("-")


class Word(Struct, tag_field="type", tag=kebab, omit_defaults=True, kw_only=True, gc=False):
    """The body of one frame."""


class WireMessage(Struct, omit_defaults=True, kw_only=True, gc=False):
    """A message. ``ttl_ms`` and ``delay_ms`` are for publishers, and count from its storage."""

    value: bytes | None = None
    key: bytes | None = None
    headers: HeaderList = []
    content_type: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    message_id: str | None = None
    priority: Annotated[int, Meta(ge=0, le=255)] | None = None
    timestamp_ms: Annotated[int, Meta(ge=-1, le=2**62)] = -1
    expires_ms: Count | None = None
    ttl_ms: Count | None = None
    delay_ms: Count | None = None


Messages = Annotated[list[WireMessage], Meta(min_length=1, max_length=MESSAGES_PER_FRAME_MAX)]


class Error(Word):
    """Why a request failed: code, cause, object and remedy."""

    code: str
    cause: str = ""
    object: str = ""
    remedy: str = ""
    retriable: bool = False


class Ok(Word):
    """Confirms a request."""


class WireQueueSettings(Struct, omit_defaults=True, frozen=True, kw_only=True):
    """Settings in the declaration of a queue; absent ones are those of ``preset``."""

    mode: str | None = None
    durable: bool | None = None
    exclusive: bool | None = None
    auto_delete: bool | None = None
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str | None = None
    max_priority: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    single_active: bool | None = None
    lease_ms: int | None = None
    max_attempts: int | None = None
    max_acquired: int | None = None
    retry_ms: int | None = None
    retry_max_ms: int | None = None
    retry_factor: float | None = None
    absence_ms: int | None = None


encode: Final = msgspec.msgpack.Encoder().encode


class WordReader:
    """Decodes the messages of one side; ``words`` is a union of their types."""

    def __init__(self, words: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(words)

    def read(self, body: Any) -> Any:
        """Decodes a body.

        Raises:
            NotAWord: the type is unknown, or a field is invalid.
        """
        try:
            return self._decoder.decode(body)
        except DECODE_ERRORS as error:
            raise NotAWord(str(error)) from None
