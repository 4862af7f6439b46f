"""Facts in the bytes that Kafka itself would write to `__transaction_state`."""

import pytest

from mainstem.coordination.shards.fact_log import batches, facts_in
from mainstem.coordination.transactions.facts import (
    TRANSACTION_CODEC,
    TransactionFact,
    TransactionRemoved,
    TransactionSaved,
    decode_transaction,
    encode_transaction,
)
from mainstem.coordination.transactions.state import NO_TIMEOUT_MS, Transaction, TransactionState
from mainstem.model.errors import Corrupt

EMPTY = Transaction(
    id="t", producer_id=7, epoch=0, timeout_ms=60_000, state=TransactionState.EMPTY, update_ms=5
)
FULL = Transaction(
    id="t",
    producer_id=7,
    epoch=3,
    timeout_ms=NO_TIMEOUT_MS,
    state=TransactionState.PREPARE_COMMIT,
    update_ms=6,
    start_ms=5,
    partitions=frozenset({("b", 0), ("a", 2), ("a", 1)}),
    client_version=2,
    previous_producer_id=8,
    last_epoch=4,
    next_producer_id=9,
    next_epoch=5,
)
FACTS: list[TransactionFact] = [
    TransactionSaved(EMPTY),
    TransactionSaved(FULL),
    TransactionRemoved("t"),
]


def test_a_key_is_version_zero_and_the_transactional_id() -> None:
    key, value = encode_transaction(TransactionRemoved("t"))

    assert (key, value) == (b"\0\0\0\1t", None)


def test_an_empty_transaction_has_no_list_of_partitions() -> None:
    _, value = encode_transaction(TransactionSaved(EMPTY))

    assert value == (
        b"\0\1"  # version
        b"\0\0\0\0\0\0\0\7"  # producer id
        b"\0\0"  # epoch
        b"\0\0\xea\x60"  # time-out
        b"\0"  # Empty
        b"\0"  # null
        b"\0\0\0\0\0\0\0\5"  # update
        b"\xff\xff\xff\xff\xff\xff\xff\xff"  # not started
        b"\0"  # no tagged fields
    )


def test_partitions_and_tagged_fields_follow_in_order() -> None:
    _, value = encode_transaction(TransactionSaved(FULL))

    assert value == (
        b"\0\1\0\0\0\0\0\0\0\7\0\3\x7f\xff\xff\xff\2"
        b"\3"  # two topics
        b"\2a\3\0\0\0\1\0\0\0\2\0"
        b"\2b\2\0\0\0\0\0"
        b"\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0\5"
        b"\5"  # five tagged fields
        b"\0\x08\0\0\0\0\0\0\0\x08"  # previous producer id
        b"\1\x08\0\0\0\0\0\0\0\x09"  # next producer id
        b"\2\2\0\2"  # client's transaction version
        b"\3\2\0\5"  # next epoch
        b"\x91\x4e\2\0\4"  # last epoch, our own
    )


def test_the_older_format_of_kafka_is_read() -> None:
    value = (
        b"\0\0\0\0\0\0\0\0\0\7\0\3\0\0\xea\x60\1"
        b"\0\0\0\1\0\1a\0\0\0\2\0\0\0\1\0\0\0\2"
        b"\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0\5"
    )

    found = decode_transaction(b"\0\0\0\1t", value)

    assert found == TransactionSaved(
        Transaction(
            id="t",
            producer_id=7,
            epoch=3,
            timeout_ms=60_000,
            state=TransactionState.ONGOING,
            update_ms=6,
            start_ms=5,
            partitions=frozenset({("a", 1), ("a", 2)}),
        )
    )


@pytest.mark.parametrize("fact", FACTS)
def test_every_fact_survives_its_bytes(fact: TransactionFact) -> None:
    assert decode_transaction(*encode_transaction(fact)) == fact


def test_facts_survive_their_batches() -> None:
    stored = b"".join(bytes(batch) for _, batch in batches(FACTS, 5, TRANSACTION_CODEC))

    assert [found for _, facts in facts_in(stored, TRANSACTION_CODEC) for found in facts] == FACTS


def test_what_a_later_version_wrote_is_passed_over() -> None:
    assert decode_transaction(None, b"") is None
    assert decode_transaction(b"\0\7\0\1t", b"\0\1") is None
    assert decode_transaction(b"\0\0\0\1t", b"\0\7") is None


def test_bytes_cut_anywhere_are_corrupt_and_never_a_crash() -> None:
    key, value = encode_transaction(TransactionSaved(FULL))
    assert value is not None

    for cut in range(len(value)):
        with pytest.raises(Corrupt):
            decode_transaction(key, value[:cut])
    for cut in range(len(key)):
        with pytest.raises(Corrupt):
            decode_transaction(key[:cut], value)


def test_a_state_that_does_not_exist_is_corrupt() -> None:
    key, value = encode_transaction(TransactionSaved(EMPTY))
    assert value is not None

    with pytest.raises(Corrupt):
        decode_transaction(key, value[:16] + b"\x63" + value[17:])
