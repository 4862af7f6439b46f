"""The common form of a message between all protocols.

    HTTP ─┐                                   ┌─ HTTP
    …    ─┼─▶ Message ─▶ record in a batch ─▶ Message ─┼─▶ …
    Kafka ┘      (stored as the producer sent it)      └─ Kafka

Guarantee: a record converted to a message and back is the same record. Therefore headers are the
only store: properties that protocols name differently (content type, correlation id, …) are headers
with agreed names, and the properties here only read them. A malformed one reads as absent and is
still passed on.
"""

from typing import Final, NamedTuple, Self

from mainstem.model.records.batch import NO_TIMESTAMP
from mainstem.model.records.record import Header, Record

CONTENT_TYPE: Final = "content-type"
CORRELATION_ID: Final = "correlation-id"
REPLY_TO: Final = "reply-to"
MESSAGE_ID: Final = "message-id"
EXPIRES_AT: Final = "expires-at"  # milliseconds since 1970, in decimal digits
PRIORITY: Final = "priority"  # 0 to 255, in decimal digits

# An AMQP message has properties and headers, which may have the same names: its properties are
# the record headers of these names, and a header of such a name gets this prefix.
AMQP_PROPERTIES: Final = "amqp-properties"  # all of them, in the form of the protocol
AMQP_HEADER_PREFIX: Final = "amqp-header."
PROPERTY_HEADERS: Final = frozenset(
    {
        CONTENT_TYPE,
        "content-encoding",
        CORRELATION_ID,
        REPLY_TO,
        MESSAGE_ID,
        EXPIRES_AT,
        PRIORITY,
        AMQP_PROPERTIES,
        "timestamp",
        "type",
        "user-id",
        "app-id",
    }
)

PRIORITY_MAX: Final = 255
_NUMBER_DIGITS_MAX: Final = 18


class Message(NamedTuple):
    """Key, value, headers and the producer's timestamp, in milliseconds since 1970."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = NO_TIMESTAMP

    @classmethod
    def of_record(cls, record: Record) -> Self:
        """The message of a stored record."""
        return cls(record.key, record.value, record.headers, record.timestamp)

    def to_record(self) -> Record:
        """The record to put into a batch; its place there decides its offset."""
        return Record(0, self.timestamp_ms, self.key, self.value, self.headers)

    def header(self, name: str) -> bytes | None:
        """The last header of that name, since later ones override; None where there is none."""
        for known, value in reversed(self.headers):
            if known == name:
                return value
        return None

    def with_header(self, name: str, value: bytes | None) -> Self:
        """The same message with this header in place of all others of its name; None drops them."""
        kept = tuple(header for header in self.headers if header[0] != name)
        return self._replace(headers=kept if value is None else (*kept, (name, value)))

    @property
    def content_type(self) -> str | None:
        """What kind of bytes the value holds."""
        return self._text(CONTENT_TYPE)

    @property
    def correlation_id(self) -> str | None:
        """The id that a request and its answer share."""
        return self._text(CORRELATION_ID)

    @property
    def reply_to(self) -> str | None:
        """Where an answer is expected."""
        return self._text(REPLY_TO)

    @property
    def message_id(self) -> str | None:
        """The name that the producer gave to this message."""
        return self._text(MESSAGE_ID)

    @property
    def expires_ms(self) -> int | None:
        """When the message expires, in milliseconds since 1970."""
        return self._number(EXPIRES_AT)

    @property
    def priority(self) -> int | None:
        """The priority of the message; higher is more urgent."""
        number = self._number(PRIORITY)
        return number if number is None or number <= PRIORITY_MAX else None

    def _text(self, name: str) -> str | None:
        value = self.header(name)
        if value is None:
            return None
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None

    def _number(self, name: str) -> int | None:
        digits = self.header(name)
        if digits is None or len(digits) > _NUMBER_DIGITS_MAX or not digits.isdigit():
            return None
        return int(digits)
