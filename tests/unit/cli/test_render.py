"""Answers in three forms."""

import json
import sys
from typing import TextIO

import pytest
import yaml

from mainstem.cli.output.render import Output, cell, show_confirmation, show_one, show_rows

ROWS = [{"name": "a", "partition_count": 1}, {"name": "long name", "partition_count": 20}]


def test_a_table_that_is_piped_is_plain_and_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, Output.TABLE)
    assert capsys.readouterr().out.splitlines() == [
        "NAME       PARTITION COUNT",
        "a          1",
        "long name  20",
    ]


def test_json_and_yaml_hold_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, Output.JSON, columns=["name"])
    assert json.loads(capsys.readouterr().out) == ROWS
    show_rows(ROWS, Output.YAML)
    assert yaml.safe_load(capsys.readouterr().out) == ROWS


def test_no_rows_are_a_heading_or_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([], Output.TABLE, columns=["name"])
    assert capsys.readouterr().out == "NAME\n"
    show_rows([], Output.JSON, columns=["name"])
    assert json.loads(capsys.readouterr().out) == []


def test_a_terminal_gets_a_drawn_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out: TextIO = sys.stdout
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    show_rows(ROWS, Output.TABLE)
    assert "─" in capsys.readouterr().out


def test_one_object_is_a_list_of_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    show_one({"name": "a", "rack": None}, Output.TABLE)
    assert capsys.readouterr().out == "name  a\nrack  -\n"


def test_a_change_is_a_sentence_or_the_object(capsys: pytest.CaptureFixture[str]) -> None:
    show_confirmation("created a", {"name": "a"}, Output.TABLE)
    show_confirmation("created a", {"name": "a"}, Output.JSON)
    sentence, document = capsys.readouterr().out.split("\n", 1)
    assert sentence == "created a"
    assert json.loads(document) == {"name": "a"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (True, "yes"), (False, "no"), (1234.5, "1,234.5"), (2.0, "2"),
        ([1, 2], "1, 2"), ({"a": None}, "a=-"), ("x\ny", "x\\ny"), (7, "7"),
    ],
)  # fmt: skip
def test_cells_are_short(value: object, text: str) -> None:
    assert cell(value) == text
