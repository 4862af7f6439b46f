"""The site builds without a warning, and loads nothing from other servers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="scripts/setup docs installs what the site needs")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 70
    loaded = re.compile(r"<(?:script|img|iframe)[^>]+src=\"https?:|<link[^>]+href=\"https?:")
    assert not [page.name for page in pages if loaded.search(page.read_text())]
