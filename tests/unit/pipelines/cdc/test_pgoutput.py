"""Messages as PostgreSQL 15 sent them, and what they say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.model.errors import Corrupt
from mainstem.pipelines.cdc.postgres.pgoutput import (
    Begin,
    Commit,
    LogicalMessage,
    Origin,
    Relation,
    RelationColumn,
    RowChange,
    Truncate,
    lsn_number,
    lsn_text,
    parse,
)
from mainstem.pipelines.cdc.row_values import UNCHANGED

CAPTURED = {
    "42000000000152fe000003034e698b3efb000002d5": Begin(0x152FE00, 1_794_745_043_197_691, 725),
    "4300000000000152fe00000000000152fe300003034e698b3efb": Commit(
        0x152FE00, 0x152FE30, 1_794_745_043_197_691
    ),
    "52000040007075626c69630074006400020169640000000017ffffffff006e616d650000000019ffffffff": (
        Relation(
            0x4000,
            "public",
            "t",
            "d",
            (
                RelationColumn("id", 23, -1, is_key=True),
                RelationColumn("name", 25, -1, is_key=False),
            ),
        )
    ),
    "49000040004e00027400000001317400000002c3a4": RowChange(
        "c", 0x4000, None, old_is_key=False, new=[b"1", "ä".encode()]
    ),
    "49000040004e00027400000001326e": RowChange(
        "c", 0x4000, None, old_is_key=False, new=[b"2", None]
    ),
    "55000040004e0002740000000131740000000162": RowChange(
        "u", 0x4000, None, old_is_key=False, new=[b"1", b"b"]
    ),
    "55000040004b00027400000001326e4e00027400000001396e": RowChange(
        "u", 0x4000, [b"2", None], old_is_key=True, new=[b"9", None]
    ),
    "55000040074b00027400000001316e4e000274000000013275": RowChange(
        "u", 0x4007, [b"1", None], old_is_key=True, new=[b"2", UNCHANGED]
    ),
    "44000040004b00027400000001316e": RowChange(
        "d", 0x4000, [b"1", None], old_is_key=True, new=None
    ),
    "5400000002010000400000004007": Truncate(
        (0x4000, 0x4007), is_cascade=True, restarts_identity=False
    ),
    "4d0100000000015319a07072650000000004626f6479": LogicalMessage(
        is_transactional=True, lsn=0x15319A0, prefix="pre", content=b"body"
    ),
}


@pytest.mark.parametrize("data", CAPTURED, ids=lambda data: bytes.fromhex(data[:2]).decode())
def test_captured_messages_say_what_happened(data: str) -> None:
    assert parse(bytes.fromhex(data)) == CAPTURED[data]


def test_types_tell_nothing() -> None:
    assert parse(b"Y" + bytes(12)) is None


def test_an_origin_names_another_server_and_a_place_there() -> None:
    assert parse(b"O" + (43981).to_bytes(8, "big") + b"elsewhere\0") == Origin(43981, "elsewhere")


@given(data=st.sampled_from(sorted(CAPTURED)), cut=st.integers(0, 60))
def test_a_message_that_is_cut_short_is_corrupt_or_read_in_full(data: str, cut: int) -> None:
    raw = bytes.fromhex(data)
    part = raw[: max(0, len(raw) - 1 - cut)]
    if part[:1] == b"M":
        return  # its content may have any length
    with pytest.raises(Corrupt):
        parse(part)


def test_a_message_of_unknown_kind_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="unknown kind"):
        parse(b"\xff123")


@given(st.integers(0, (1 << 64) - 1))
def test_positions_keep_their_value_in_the_servers_notation(lsn: int) -> None:
    assert lsn_number(lsn_text(lsn)) == lsn
