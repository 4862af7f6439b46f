"""Every row of the page of features says what shows it."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "features.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| row ")
]


def test_there_are_rows_with_different_ids() -> None:
    ids = [row[0] for row in ROWS]
    assert len(ids) > 60
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_what_shows_it_unless_it_is_planned(row: list[str]) -> None:
    _, _, state, shown = row
    assert re.match(r"(works|part|planned)\b", state)
    if state == "planned":
        assert not shown
    else:
        assert re.search(r"`(tests/|make |bench/)", shown)
