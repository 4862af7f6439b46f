"""The examples of STYLE.md are code of this repository, unchanged."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "STYLE.md").read_text()


def test_every_example_is_what_the_source_says() -> None:
    """After a change of the source: ``.venv/bin/python scripts/style-examples``."""
    written = subprocess.run(
        [sys.executable, ROOT / "scripts" / "style-examples", "--print"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert written.returncode == 0, written.stderr
    assert written.stdout == PAGE


def test_every_example_names_its_origin() -> None:
    origins = re.findall(r"^<!-- from \S+:[\w.]+ -->\n```python$", PAGE, re.MULTILINE)
    assert len(origins) == PAGE.count("```python")
    assert len(origins) >= 8
