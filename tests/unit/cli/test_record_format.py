"""Printing records."""

import pytest

from mainstem.cli.errors import UsageFailure
from mainstem.cli.output.record_format import as_document, compile_format
from mainstem.client.values import ConsumerRecord

RECORD = ConsumerRecord("t", 3, 42, 1700, b"k", b"v%s", (("a", b"1"), ("b", None)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"%s\n", b"v%s\n"),
        (r"%t-%p@%o %T\t%k=%s", b"t-3@42 1700\tk=v%s"),
        ("%K %S %h", b"1 3 a=1,b=NULL"),
        ("100%% \\x \\\\", b"100% \\x \\"),
        ("é", "é".encode()),
        ("", b""),
    ],
)
def test_letters_and_escapes_are_understood(text: str, expected: bytes) -> None:
    assert compile_format(text)(RECORD) == expected


def test_nothing_is_printed_for_a_missing_key_and_its_length_is_minus_one() -> None:
    assert compile_format("[%k] %K")(RECORD._replace(key=None)) == b"[] -1"


@pytest.mark.parametrize("text", ["%x", "ends in %"])
def test_a_letter_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageFailure, match="is unknown"):
        compile_format(text)


def test_documents_hold_text_where_bytes_are_text() -> None:
    document = as_document(RECORD._replace(key=b"\xff"))
    assert document["value"] == "v%s"
    assert document["key_base64"] == "/w=="
    assert document["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": None}]
