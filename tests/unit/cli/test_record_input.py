"""Reading records from lines."""

import io

import pytest

from mainstem.cli import record_input
from mainstem.cli.failure import UsageFailure
from mainstem.cli.record_input import Line, LineRules, headers, lines, separator


def read(text: bytes, rules: LineRules) -> list[Line]:
    return [line for line, _ in lines(io.BytesIO(text), rules)]


def test_each_line_is_a_value() -> None:
    assert read(b"a\n\nb", LineRules()) == [Line(None, b"a"), Line(None, b""), Line(None, b"b")]


def test_the_first_separator_ends_the_key() -> None:
    assert read(b"k:v:w\n:x\n", LineRules(key_separator=b":")) == [
        Line(b"k", b"v:w"),
        Line(b"", b"x"),
    ]


def test_a_line_without_separator_is_refused_with_its_number() -> None:
    with pytest.raises(UsageFailure, match="line 2"):
        read(b"k:v\nplain\n", LineRules(key_separator=b":"))


def test_a_marker_stands_for_no_value() -> None:
    rules = LineRules(key_separator=b":", null_marker=b"NULL")
    assert read(b"k:NULL\n", rules) == [Line(b"k", None)]


def test_one_key_may_hold_for_all_lines() -> None:
    assert read(b"a\n", LineRules(key=b"k")) == [Line(b"k", b"a")]


def test_sizes_add_up_to_the_input() -> None:
    assert [size for _, size in lines(io.BytesIO(b"ab\nc"), LineRules())] == [3, 1]


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
