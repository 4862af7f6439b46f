"""Converts messages in JSON to our messages and back."""

import binascii
from base64 import b64encode

import msgspec

from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.limits import HEADERS_PER_RECORD_MAX
from mainstem.model.message import Message
from mainstem.model.records.record import Header, Record
from mainstem.protocols.rest.errors import bad_request
from mainstem.protocols.rest.schemas.topics_and_groups import (
    HeaderAnswer,
    HeaderRequest,
    MessageAnswer,
    MessageRequest,
)

_QUOTE = 0x22
_BACKSLASH = 0x5C

_decode_text = msgspec.json.Decoder(str).decode


def message_of(request: MessageRequest, *, now_ms: int, place: int) -> Message:
    """Convert to a message; ``place`` is its index in the request, for error messages."""
    return Message(
        _field(request.key, request.key_encoding, place, "key"),
        _field(request.value, request.value_encoding, place, "value"),
        _headers(request.headers, place) if request.headers else (),
        now_ms if request.timestamp is None else request.timestamp,
    )


def shown(record: Record, partition: int, encoding: str) -> MessageAnswer:
    """Convert a stored record; encoding ``auto`` is text where the bytes are UTF-8."""
    key, key_encoding = _shown(record.key, encoding)
    value, value_encoding = _shown(record.value, encoding)
    headers = []
    for name, content in record.headers:
        text, used = _shown(content, encoding)
        headers.append(HeaderAnswer(name=name, value=text, encoding=used))
    return MessageAnswer(
        offset=record.offset,
        timestamp=record.timestamp,
        key=key,
        value=value,
        partition=partition,
        key_encoding=key_encoding,
        value_encoding=value_encoding,
        headers=headers,
    )


def _headers(given: dict[str, str | None] | list[HeaderRequest], place: int) -> tuple[Header, ...]:
    if isinstance(given, dict):
        given = [HeaderRequest(name=name, value=value) for name, value in given.items()]
    if len(given) > HEADERS_PER_RECORD_MAX:
        raise bad_request(f"{len(given)} headers in one message", subject=f"messages[{place}]")
    headers: list[Header] = []
    for header in given:
        where = f"messages[{place}].headers[{header.name[:100]}]"
        value = header.value
        headers.append(
            (header.name, None if value is None else _bytes(value, header.encoding, where))
        )
    return tuple(headers)


def _field(raw: msgspec.Raw, encoding: str, place: int, name: str) -> bytes | None:
    data = bytes(raw)
    if data == b"null":
        return None
    if data[0] == _QUOTE:
        if encoding == "text" and _BACKSLASH not in data:
            return data[1:-1]  # without escapes, JSON's text is the text itself
        where = f"messages[{place}].{name}"
        try:
            text = _decode_text(data)
        except DECODE_ERRORS as error:
            raise bad_request(f"not a JSON string: {error}", subject=where) from None
        return _bytes(text, encoding, where)
    if encoding != "text":
        raise bad_request("base64 must be a string", subject=f"messages[{place}].{name}")
    return data


def _bytes(text: str, encoding: str, where: str) -> bytes:
    if encoding == "text":
        return text.encode()
    try:
        return binascii.a2b_base64(text.encode(), strict_mode=True)
    except binascii.Error as error:
        raise bad_request(f"not base64: {error}", subject=where) from None


def _shown(data: bytes | None, encoding: str) -> tuple[str | None, str]:
    if data is None:
        return None, "text"
    if encoding != "base64":
        try:
            return data.decode(errors="strict" if encoding == "auto" else "replace"), "text"
        except UnicodeDecodeError:
            pass
    return b64encode(data).decode(), "base64"
