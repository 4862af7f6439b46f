"""The facts of transaction coordination and their encoding, that of Kafka's `__transaction_state`.

    fact                  key                   value
    TransactionSaved      0  transactional id   1  (0 is read, too)
    TransactionRemoved    0  transactional id   none

Each record holds the whole state of its id, so compaction keeps exactly what replay needs. One
tagged field is Mainstem's: the last epoch, without which a repeated request after a restart would
look like that of a fenced producer. Guarantees: every fact survives the round trip; keys and values
of an unknown version decode to None, which ends the loading; damaged bytes are ``Corrupt``.
"""

import struct

from msgspec import Struct

from mainstem.coordination.shards.fact_log import FactCodec
from mainstem.coordination.shards.primitive_types import (
    BYTE,
    INT,
    LONG,
    SHORT,
    PrimitiveReader,
    compact_text,
    tags,
    text,
    uvarint,
)
from mainstem.coordination.transactions.state import (
    NO_EPOCH,
    NO_PRODUCER,
    Partition,
    ProducerIdentity,
    Transaction,
    TransactionState,
)
from mainstem.model.errors import Corrupt

_KEY = 0
_VALUE = 1
_VALUES = (0, 1)
_PREVIOUS_PRODUCER_ID = 0
_NEXT_PRODUCER_ID = 1
_CLIENT_VERSION = 2
_NEXT_EPOCH = 3
# Far from the tag numbers that Kafka assigns consecutively.
_LAST_EPOCH = 10_001


class TransactionSaved(Struct, frozen=True):
    """The state of a transactional id."""

    transaction: Transaction


class TransactionRemoved(Struct, frozen=True):
    """A transactional id was deleted."""

    transactional_id: str


TransactionFact = TransactionSaved | TransactionRemoved


def encode_transaction(fact: TransactionFact) -> tuple[bytes, bytes | None]:
    """Encode ``fact`` as key and value of a record."""
    match fact:
        case TransactionSaved(transaction):
            return _key(transaction.id), _value(transaction)
        case TransactionRemoved(transactional_id):
            return _key(transactional_id), None


def decode_transaction(key: bytes | None, value: bytes | None) -> TransactionFact | None:
    """Decode a record; None for an unknown version.

    Raises:
        Corrupt: the bytes do not have the format of their version.
    """
    if key is None:
        return None
    try:
        reader = PrimitiveReader(key)
        if reader.int16() != _KEY:
            return None
        transactional_id = reader.text()
        if value is None:
            return TransactionRemoved(transactional_id)
        return _decoded(transactional_id, value)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise Corrupt(f"a record of {len(key)} key bytes does not decode: {error}") from error


def _key(transactional_id: str) -> bytes:
    return SHORT.pack(_KEY) + text(transactional_id)


def _value(transaction: Transaction) -> bytes:
    parts = [
        SHORT.pack(_VALUE),
        LONG.pack(transaction.producer_id),
        SHORT.pack(transaction.epoch),
        INT.pack(transaction.timeout_ms),
        BYTE.pack(transaction.state),
    ]
    if transaction.state is TransactionState.EMPTY:
        parts.append(uvarint(0))
    else:
        topics = by_topic(transaction.partitions)
        parts.append(uvarint(len(topics) + 1))
        for topic, partitions in topics.items():
            numbers = (INT.pack(partition) for partition in partitions)
            parts += (compact_text(topic), uvarint(len(partitions) + 1), *numbers, tags({}))
    parts += (LONG.pack(transaction.update_ms), LONG.pack(transaction.start_ms))
    given = {
        _PREVIOUS_PRODUCER_ID: (LONG, transaction.previous_producer_id, NO_PRODUCER),
        _NEXT_PRODUCER_ID: (LONG, transaction.next_producer_id, NO_PRODUCER),
        _CLIENT_VERSION: (SHORT, transaction.client_version, 0),
        _NEXT_EPOCH: (SHORT, transaction.next_epoch, NO_EPOCH),
        _LAST_EPOCH: (SHORT, transaction.last_epoch, NO_EPOCH),
    }
    parts.append(
        tags(
            {
                t: layout.pack(encoded)
                for t, (layout, encoded, default) in given.items()
                if encoded != default
            }
        )
    )
    return b"".join(parts)


def by_topic(partitions: frozenset[Partition]) -> dict[str, list[int]]:
    """Partition numbers by topic, both in order, so that equal states have equal bytes."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def _decoded(transactional_id: str, value: bytes) -> TransactionFact | None:
    version = SHORT.unpack_from(value)[0]
    if version not in _VALUES:
        return None
    reader = PrimitiveReader(value, flexible=version >= 1)
    reader.int16()
    producer_id = reader.int64()
    epoch = reader.int16()
    timeout_ms = reader.int32()
    state = TransactionState(reader.int8())
    partitions: set[Partition] = set()
    for _ in range(reader.count()):
        topic = reader.text()
        partitions.update((topic, reader.int32()) for _ in range(reader.count()))
        reader.tags()
    update_ms = reader.int64()
    start_ms = reader.int64()
    tagged = reader.tags()

    def tag(number: int, default: int) -> int:
        layout = LONG if number in (_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID) else SHORT
        found: int = layout.unpack(tagged[number])[0] if number in tagged else default
        return found

    return TransactionSaved(
        Transaction(
            id=transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            timeout_ms=timeout_ms,
            state=state,
            update_ms=update_ms,
            start_ms=start_ms,
            partitions=frozenset(partitions),
            client_version=tag(_CLIENT_VERSION, 0),
            previous_producer_id=tag(_PREVIOUS_PRODUCER_ID, NO_PRODUCER),
            next_producer_id=tag(_NEXT_PRODUCER_ID, NO_PRODUCER),
            next_epoch=tag(_NEXT_EPOCH, NO_EPOCH),
            last_epoch=tag(_LAST_EPOCH, NO_EPOCH),
        )
    )


class TransactionCodec:
    """The facts of transactions as records of `__transaction_state`; none is transactional."""

    version_bytes = SHORT.size
    versions = f"{_KEY} with values of {_VALUES[0]} to {_VALUES[-1]}"

    def encode(self, fact: TransactionFact) -> tuple[bytes, bytes | None]:
        """Encode ``fact`` as key and value of a record."""
        return encode_transaction(fact)

    def decode(self, key: bytes | None, value: bytes | None) -> TransactionFact | None:
        """Decode a record; None for an unknown version."""
        return decode_transaction(key, value)

    def producer_of(self, _fact: TransactionFact) -> ProducerIdentity | None:
        """None: these facts do not depend on a transaction."""
        return None

    def pending(self, _fact: TransactionFact, _producer: ProducerIdentity) -> None:
        """None: this topic contains no transactional batches."""

    def ended(self, _producer: ProducerIdentity, *, commit: bool) -> None:
        """None: no fact of this topic waits for a marker."""


TRANSACTION_CODEC: FactCodec[TransactionFact] = TransactionCodec()
