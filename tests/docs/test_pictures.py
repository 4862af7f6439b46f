"""Pictures are drawn from their sources, and pages show them."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PICTURES = sorted((DOCS / "pictures").glob("*.svg"))


def test_every_picture_is_what_its_source_says() -> None:
    """After a change of a source: ``.venv/bin/python scripts/pictures``."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "pictures", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_picture_has_a_source_and_a_page() -> None:
    assert PICTURES
    assert not [path.name for path in PICTURES if not path.with_suffix(".toml").exists()]
    shown = set()
    for page in DOCS.rglob("*.md"):
        shown |= set(re.findall(r"!\[[^\]]+\]\([^)]*pictures/([\w.-]+)\)", page.read_text()))
    assert {path.name for path in PICTURES} == shown


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_described_and_follows_the_colour_scheme(path: Path) -> None:
    text = path.read_text()
    svg = ET.fromstring(text)
    named = {element.tag.rpartition("}")[2]: element.text for element in svg}
    assert named["title"]
    assert named["desc"]
    assert "prefers-color-scheme: dark" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
