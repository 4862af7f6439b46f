"""What users can type is on a page: every command and every transform."""

import ast
import re
from collections.abc import Iterator
from typing import Any

import typer
from tests.tidy.source_tree import ROOT, SRC

from mainstem.cli.main import app

PLAN = SRC / "pipelines" / "transforms" / "plan.py"


def first_cells() -> Iterator[str]:
    """The first cell of every row of every table of the documentation."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        yield from re.findall(r"^\| ([^|]+) \|", page.read_text(), flags=re.MULTILINE)


def steps() -> list[str]:
    """The names in ``STEPS``; read, not imported, because Spark takes seconds to import."""
    for node in ast.parse(PLAN.read_text()).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "STEPS":
            assert isinstance(node.value, ast.Dict)
            return [ast.literal_eval(key) for key in node.value.keys if key is not None]
    raise AssertionError("STEPS is not where it was")


def test_every_command_is_in_a_table() -> None:
    tree: Any = typer.main.get_command(app)
    rows = [cell for cell in first_cells() if cell.startswith("`mainstem")]
    # A row lists several: `mainstem queue`, `exchange`, `binding`.
    named = {
        word for row in rows for code in re.findall(r"`([^`]+)`", row) for word in code.split()
    }
    assert set(tree.commands) - named == set()


def test_every_transform_is_in_a_table() -> None:
    assert len(steps()) > 10
    named = {match[1] for cell in first_cells() if (match := re.match(r"`(\w+)`", cell))}
    assert set(steps()) - named == set()
