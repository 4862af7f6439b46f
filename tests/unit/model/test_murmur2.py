"""Keys go where Kafka's own clients send them."""

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from mainstem.model.records.murmur2 import murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_known_keys_have_the_hashes_that_the_java_client_gives_them(
    key: bytes, expected: int
) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(st.binary(max_size=64), st.integers(1, 1_000))
def test_any_key_goes_where_another_client_sends_it(key: bytes, partitions: int) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) & 0xFFFFFFFF
    expected = (aiokafka_murmur2(key) & 0x7FFFFFFF) % partitions
    assert partition_of_key(key, partitions) == expected
