"""Reading records from lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.cli.errors import UsageFailure
from mainstem.cli.parameters import record_input
from mainstem.cli.parameters.record_input import (
    InputRecord,
    LineReader,
    LineRules,
    headers,
    separator,
)


def read(text: bytes, rules: LineRules) -> list[InputRecord]:
    reader = LineReader(rules)
    return reader.feed(text) + reader.end()


def test_each_line_is_a_value() -> None:
    assert read(b"a\n\nb", LineRules()) == [
        InputRecord(None, b"a"),
        InputRecord(None, b""),
        InputRecord(None, b"b"),
    ]


def test_the_first_separator_ends_the_key() -> None:
    assert read(b"k:v:w\n:x\n", LineRules(key_separator=b":")) == [
        InputRecord(b"k", b"v:w"),
        InputRecord(b"", b"x"),
    ]


def test_a_line_without_separator_is_refused_with_its_number() -> None:
    with pytest.raises(UsageFailure, match="line 2"):
        read(b"k:v\nplain\n", LineRules(key_separator=b":"))


def test_a_marker_stands_for_no_value() -> None:
    rules = LineRules(key_separator=b":", null_marker=b"NULL")
    assert read(b"k:NULL\n", rules) == [InputRecord(b"k", None)]


def test_one_key_may_hold_for_all_lines() -> None:
    assert read(b"a\n", LineRules(key=b"k")) == [InputRecord(b"k", b"a")]


@given(st.lists(st.binary(max_size=8)))
def test_it_does_not_matter_how_the_input_is_cut(pieces: list[bytes]) -> None:
    reader = LineReader(LineRules())
    found = [line for piece in pieces for line in reader.feed(piece)] + reader.end()
    assert found == read(b"".join(pieces), LineRules())


def test_an_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_input, "LINE_BYTES_MAX", 4)
    with pytest.raises(UsageFailure, match="longer"):
        read(b"12345", LineRules())


def test_headers_are_names_with_or_without_values() -> None:
    assert headers(["a=1=2", "b"]) == (("a", b"1=2"), ("b", None))
    with pytest.raises(UsageFailure, match="no name"):
        headers(["=x"])


def test_separators_are_typed_as_in_a_shell() -> None:
    assert separator("\\t") == b"\t"
    assert separator("::") == b"::"
    with pytest.raises(UsageFailure, match="empty"):
        separator("")
