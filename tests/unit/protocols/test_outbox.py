"""What waits to be sent comes out in order, whatever the socket takes at a time."""

from hypothesis import given
from hypothesis import strategies as st

from mainstem.protocols.outbox import SENDFILE_BYTES_MIN, FilePiece, Outbox


class MemorySlice:
    """A slice of a file that lives in memory."""

    fd = 3
    position = 10
    verified = True

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read(self) -> bytes:
        return self._data

    def at(self, position: int, count: int) -> bytes:
        start = position - self.position
        return self._data[start : start + count]


def drained(outbox: Outbox, takes: list[int]) -> bytes:
    out = b""
    turn = 0
    while (piece := outbox.next()) is not None:
        take = takes[turn % len(takes)]
        turn += 1
        if isinstance(piece, FilePiece):
            count = min(take, piece.remaining)
            out += piece.source.at(piece.position, count)
        else:
            count = min(take, len(piece))
            out += bytes(piece[:count])
        outbox.sent(count)
    return out


def test_a_large_verified_slice_stays_a_file() -> None:
    outbox = Outbox()
    outbox.put([b"head", MemorySlice(b"x" * SENDFILE_BYTES_MIN)], files=True)

    first = outbox.next()
    assert isinstance(first, memoryview)
    assert outbox.more_follows
    outbox.sent(4)
    assert isinstance(outbox.next(), FilePiece)


def test_an_unverified_slice_is_read() -> None:
    outbox = Outbox()
    part = MemorySlice(b"x" * SENDFILE_BYTES_MIN)
    part.verified = False
    outbox.put([part], files=True)

    assert isinstance(outbox.next(), memoryview)


@given(
    shapes=st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=12),
    takes=st.lists(st.integers(997, 50_000), min_size=1, max_size=5),
    files=st.booleans(),
)
def test_everything_comes_out_in_order(
    shapes: list[tuple[bool, int]], takes: list[int], files: bool
) -> None:
    chunks = [
        (as_file, bytes([at]) * (halves * SENDFILE_BYTES_MIN // 2))
        for at, (as_file, halves) in enumerate(shapes)
    ]
    outbox = Outbox()
    for as_file, data in chunks:
        outbox.put([MemorySlice(data) if as_file else data], files=files)
    expected = b"".join(data for _, data in chunks)
    assert outbox.size_bytes == len(expected)

    assert drained(outbox, takes) == expected
    assert outbox.size_bytes == 0
    assert not outbox
