"""Kafka messages to bytes and back, for every client-facing API and version of the table.

Encoders and decoders are compiled on first use of a (key, version, direction) and cached. Input is
untrusted: a decoder either returns a message that ended within its bytes or raises ``Malformed``,
nothing else, and memory stays proportional to the bytes received.

``records`` fields decode to a memoryview into the input and encode as one chunk of their own; all
other bytes around them are joined.
"""

import struct
from typing import Any, Final

from mainstem.wire.kafka.decoder import Decoder, compile_decoder
from mainstem.wire.kafka.encoder import Chunk, Encoder, compile_encoder
from mainstem.wire.kafka.primitives import (
    REQUEST_ELEMENTS_MAX,
    RESPONSE_ELEMENTS_MAX,
    Buffer,
    Malformed,
    Unencodable,
    decode_uvarint,
)
from mainstem.wire.kafka.schema import load_api, load_data
from mainstem.wire.kafka.table import APIS

__all__ = [
    "FLEXIBLE_SINCE",
    "KEYS",
    "NAMES",
    "REQUEST_ELEMENTS_MAX",
    "VERSIONS",
    "Buffer",
    "Chunk",
    "Malformed",
    "Unencodable",
    "decode_data",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "decode_response_header",
    "encode_data",
    "encode_request",
    "encode_request_frame",
    "encode_response",
    "encode_response_frame",
    "request_header_version",
    "response_header_version",
]

NAMES: Final[dict[int, str]] = {key: row[0] for key, row in APIS.items()}
KEYS: Final[dict[str, int]] = {name: key for key, name in NAMES.items()}
VERSIONS: Final[dict[int, tuple[int, int]]] = {key: (row[2], row[3]) for key, row in APIS.items()}
FLEXIBLE_SINCE: Final[dict[int, int]] = {key: row[4] for key, row in APIS.items()}

API_VERSIONS_KEY: Final = 18
NEVER_FLEXIBLE: Final = 32767

_HEADER = struct.Struct(">hhih")  # key, version, correlation id, length of the client id
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_RESPONSE_PREFIX = struct.Struct(">ii")

_request_decoders: dict[tuple[int, int], Decoder] = {}
_response_decoders: dict[tuple[int, int], Decoder] = {}
_request_encoders: dict[tuple[int, int], Encoder] = {}
_response_encoders: dict[tuple[int, int], Encoder] = {}
_data_decoders: dict[tuple[str, int], Decoder] = {}
_data_encoders: dict[tuple[str, int], Encoder] = {}

# What invalid bytes can raise inside a generated decoder.
_DECODE_ERRORS = (IndexError, struct.error, UnicodeDecodeError)
# What a wrong value can raise inside a generated encoder.
_ENCODE_ERRORS = (struct.error, TypeError, AttributeError, UnicodeEncodeError)


def decode_request(api_key: int, version: int, buf: Buffer, start: int, until: int) -> Any:
    """Decodes the request body in ``buf[start:until]``."""
    decoder = _request_decoders.get((api_key, version))
    if decoder is None:
        decoder = _compile_decoder(api_key, version, is_request=True)
    message, position = _decode(decoder, buf, start, until, REQUEST_ELEMENTS_MAX)
    if position > until:
        raise _of_another_length(start, position, until)
    # Bytes after the last field are accepted, as in Kafka: librdkafka writes some null arrays so.
    return message


def decode_response(api_key: int, version: int, buf: Buffer, start: int, until: int) -> Any:
    """Decodes a response body that must fill ``buf[start:until]`` exactly."""
    decoder = _response_decoders.get((api_key, version))
    if decoder is None:
        decoder = _compile_decoder(api_key, version, is_request=False)
    message, position = _decode(decoder, buf, start, until, RESPONSE_ELEMENTS_MAX)
    if position != until:
        raise _of_another_length(start, position, until)
    return message


def encode_request(api_key: int, version: int, message: Any) -> list[Chunk]:
    """Encodes a request body."""
    encoder = _request_encoders.get((api_key, version))
    if encoder is None:
        encoder = _compile_encoder(api_key, version, is_request=True)
    try:
        return encoder(message)
    except _ENCODE_ERRORS as error:
        raise _unencodable(message, version, error) from error


def encode_response(api_key: int, version: int, message: Any) -> list[Chunk]:
    """Encodes a response body."""
    encoder = _response_encoders.get((api_key, version))
    if encoder is None:
        encoder = _compile_encoder(api_key, version, is_request=False)
    try:
        return encoder(message)
    except _ENCODE_ERRORS as error:
        raise _unencodable(message, version, error) from error


def encode_response_frame(
    api_key: int, version: int, correlation_id: int, message: Any
) -> list[Chunk]:
    """Encodes a whole response: length, header, body; the first chunk is always bytes."""
    chunks = encode_response(api_key, version, message)
    if response_header_version(api_key, version):
        size = 5 + sum(map(len, chunks))
        head = _RESPONSE_PREFIX.pack(size, correlation_id) + b"\0"
    else:
        size = 4 + sum(map(len, chunks))
        head = _RESPONSE_PREFIX.pack(size, correlation_id)
    return _with_head(head, chunks)


def encode_request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Any
) -> list[Chunk]:
    """Encodes a whole request: length, header, body; the first chunk is always bytes."""
    chunks = encode_request(api_key, version, message)
    if client_id is None:
        head = _HEADER.pack(api_key, version, correlation_id, -1)
    else:
        client = client_id.encode()
        head = _HEADER.pack(api_key, version, correlation_id, len(client)) + client
    if request_header_version(api_key, version) == 2:
        head += b"\0"
    size = len(head) + sum(map(len, chunks))
    return _with_head(_INT32.pack(size) + head, chunks)


def decode_request_header(
    buf: Buffer, start: int, until: int
) -> tuple[int, int, int, str | None, int]:
    """Decodes a request header: key, version, correlation id, client id, start of the body.

    An unknown key is read with the header that all keys share, so that the caller can respond; for
    an unknown version of a known key the newest header is assumed.
    """
    try:
        api_key, version, correlation_id, length = _HEADER.unpack_from(buf, start)
        body = start + 10
        client_id = None
        if length >= 0:
            body += length
            if body > until:
                raise Malformed("the client id exceeds the request")
            client_id = str(buf[body - length : body], "utf-8")
        if version >= FLEXIBLE_SINCE.get(api_key, NEVER_FLEXIBLE):
            body = _skip_tags(buf, body, until)
    except _DECODE_ERRORS as error:
        raise Malformed(f"the request header is malformed: {error}") from error
    if body > until:
        raise Malformed("the request is shorter than its header")
    return api_key, version, correlation_id, client_id, body


def decode_response_header(
    api_key: int, version: int, buf: Buffer, start: int, until: int
) -> tuple[int, int]:
    """Decodes a response header: correlation id and start of the body."""
    try:
        [correlation_id] = _INT32.unpack_from(buf, start)
        body = start + 4
        if response_header_version(api_key, version):
            body = _skip_tags(buf, body, until)
    except _DECODE_ERRORS as error:
        raise Malformed(f"the response header is malformed: {error}") from error
    if body > until:
        raise Malformed("the response is shorter than its header")
    return correlation_id, body


def request_header_version(api_key: int, version: int) -> int:
    """1, or 2 for flexible versions."""
    return 2 if version >= FLEXIBLE_SINCE.get(api_key, NEVER_FLEXIBLE) else 1


def response_header_version(api_key: int, version: int) -> int:
    """0, or 1 for flexible versions; ApiVersions stays at 0 so that any client can read it."""
    if api_key == API_VERSIONS_KEY:
        return 0
    return 1 if version >= FLEXIBLE_SINCE.get(api_key, NEVER_FLEXIBLE) else 0


def encode_data(name: str, version: int, message: Any) -> bytes:
    """Encodes a message that is embedded in another, prefixed by its version."""
    encoder = _data_encoders.get((name, version))
    if encoder is None:
        encoder = _data_encoders[name, version] = compile_encoder(load_data(name, version))
    try:
        [body] = encoder(message)
    except _ENCODE_ERRORS as error:
        raise _unencodable(message, version, error) from error
    assert isinstance(body, bytes), "data messages hold no records"
    return _INT16.pack(version) + body


def decode_data(name: str, version_max: int, buf: Buffer) -> tuple[int, Any]:
    """Decodes a message that is embedded in another: its version and the message.

    A newer version than ``version_max`` is read as that one, as Kafka's consumers do: later
    versions only append fields.
    """
    try:
        [version] = _INT16.unpack_from(buf, 0)
    except struct.error as error:
        raise Malformed(f"{name} has no version") from error
    known = min(version, version_max)
    decoder = _data_decoders.get((name, known))
    if decoder is None:
        try:
            decoder = compile_decoder(load_data(name, known))
        except LookupError as error:
            raise Malformed(str(error)) from error
        _data_decoders[name, known] = decoder
    try:
        message, position = decoder(buf, 2, len(buf), REQUEST_ELEMENTS_MAX)
    except _DECODE_ERRORS as error:
        raise Malformed(f"{name} is malformed: {error}") from error
    if position > len(buf):
        raise Malformed(f"{name} is too short")
    return version, message


def prepare(api_key: int, version: int) -> None:
    """Compiles the client's half of an API now, for processes that are forked later."""
    _compile_encoder(api_key, version, is_request=True)
    _compile_decoder(api_key, version, is_request=False)


def _decode(
    decoder: Decoder, buf: Buffer, start: int, until: int, elements_max: int
) -> tuple[Any, int]:
    assert until <= len(buf), "the message ends beyond its buffer"
    try:
        return decoder(buf, start, until, elements_max)
    except _DECODE_ERRORS as error:
        raise Malformed(f"the message is malformed: {error}") from error


def _of_another_length(start: int, position: int, until: int) -> Malformed:
    return Malformed(f"the message has {until - start} bytes, its fields {position - start}")


def _compile_decoder(api_key: int, version: int, *, is_request: bool) -> Decoder:
    try:
        decoder = compile_decoder(load_api(api_key, version, is_request=is_request))
    except LookupError as error:
        raise Malformed(f"API {api_key} version {version} is unknown") from error
    kept = _request_decoders if is_request else _response_decoders
    kept[api_key, version] = decoder
    return decoder


def _compile_encoder(api_key: int, version: int, *, is_request: bool) -> Encoder:
    try:
        encoder = compile_encoder(load_api(api_key, version, is_request=is_request))
    except LookupError as error:
        raise Unencodable(f"API {api_key} version {version} is unknown") from error
    kept = _request_encoders if is_request else _response_encoders
    kept[api_key, version] = encoder
    return encoder


def _with_head(head: bytes, chunks: list[Chunk]) -> list[Chunk]:
    first = chunks[0]
    assert isinstance(first, bytes), "an encoder starts with bytes"
    chunks[0] = head + first
    return chunks


def _skip_tags(buf: Buffer, position: int, until: int) -> int:
    """Skips the tagged section of a header; no header tags are used."""
    count = buf[position]
    position += 1
    if count == 0:
        return position
    count, position = decode_uvarint(buf, position - 1)
    if count * 2 > until - position or count > REQUEST_ELEMENTS_MAX:
        raise Malformed("the header claims too many tagged fields")
    for _ in range(count):
        _, position = decode_uvarint(buf, position)
        size, position = decode_uvarint(buf, position)
        position += size
        if position > until:
            raise Malformed("a tagged field exceeds the header")
    return position


def _unencodable(message: Any, version: int, error: Exception) -> Unencodable:
    return Unencodable(f"{type(message).__name__} version {version}: {error}")
