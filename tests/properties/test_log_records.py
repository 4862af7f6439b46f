"""Records and codecs for all inputs, not only the ones we thought of."""

from hypothesis import given
from hypothesis import strategies as st

from mainstem.model.errors import Corrupt, MainstemError
from mainstem.model.records.compression import compress, decompress
from mainstem.model.records.record import Record, build_batch, records_of

timestamps = st.integers(min_value=0, max_value=2**43)
fields = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=20), fields), max_size=4).map(tuple)
contents = st.lists(st.tuples(timestamps, fields, fields, headers), min_size=1, max_size=20)


@given(contents, st.integers(0, 4))
def test_any_records_survive_any_codec(
    content: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    codec: int,
) -> None:
    records = [Record(place, *fields) for place, fields in enumerate(content)]
    assert list(records_of(build_batch(records, codec=codec))) == records


@given(st.binary(max_size=5_000), st.integers(0, 4), st.integers(0, 6_000))
def test_a_limit_is_kept_exactly(data: bytes, codec: int, limit_bytes: int) -> None:
    packed = compress(codec, data)
    try:
        assert decompress(codec, packed, limit_bytes=limit_bytes) == data
    except MainstemError:
        assert len(data) > limit_bytes
    else:
        assert len(data) <= limit_bytes


@given(st.integers(0, 7), st.binary(max_size=400))
def test_noise_is_refused_or_stays_within_the_limit(codec: int, noise: bytes) -> None:
    try:
        plain = decompress(codec, noise, limit_bytes=10_000)
    except MainstemError:
        return
    assert len(plain) <= 10_000


@given(st.binary(max_size=300))
def test_noise_is_no_batch(noise: bytes) -> None:
    try:
        list(records_of(noise))
    except Corrupt:
        return
    raise AssertionError("noise with a valid checksum")
