"""The documentation is one connected whole and says nothing about files that are not there."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def links(page: Path) -> set[Path]:
    """The files that a page points at."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = {target for target in LINK.findall(text) if "://" not in target}
    return {(page.parent / target).resolve() for target in targets}


def pages() -> list[Path]:
    tops = [path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"]
    return [*tops, ROOT / "src" / "mainstem" / "README.md", *sorted(DOCS.rglob("*.md"))]


def test_every_link_leads_somewhere() -> None:
    dead = [
        f"{page.relative_to(ROOT)} -> {target.relative_to(ROOT)}"
        for page in pages()
        for target in links(page)
        if not target.exists()
    ]
    assert not dead


def test_every_page_is_reached_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [DOCS / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        waiting += links(page)
    assert not [
        str(page.relative_to(ROOT)) for page in sorted(DOCS.rglob("*.md")) if page not in seen
    ]


def test_every_test_that_a_page_names_exists() -> None:
    """A claim such as ``tests/unit/log/test_segment.py::test_x`` must be there to be run."""
    absent = []
    for page in pages():
        text = page.read_text()
        for name in set(re.findall(r"tests/[\w/.-]+\.(?:py|txt)(?:::\w+)?", text)):
            path, _, function = name.partition("::")
            file = ROOT / path
            if f"Create `{path}`:" in text:
                continue  # a tutorial, which is executed as a whole
            if not file.exists() or (function and f"def {function}(" not in file.read_text()):
                absent.append(f"{page.relative_to(ROOT)}: {name}")
    assert not absent


def test_decisions_bear_different_numbers_and_tell_why() -> None:
    decisions = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    numbers = [int(path.name[:4]) for path in decisions]
    assert numbers == sorted(set(numbers))
    for path in decisions:
        text = path.read_text()
        assert re.search(r"^# \d{4}[ .:-]", text), f"{path.name} has no numbered title"
        missing = [h for h in ("## Context", "## Decision", "## Consequences") if h not in text]
        assert not missing, f"{path.name} lacks {missing}"


def test_the_page_of_settings_is_what_the_settings_say() -> None:
    """After a change of a setting: ``.venv/bin/python scripts/settings-page``."""
    written = subprocess.run(
        [sys.executable, ROOT / "scripts" / "settings-page", "--print"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (DOCS / "reference" / "configuration.md").read_text() == written.stdout


def test_every_module_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    names = set(re.findall(r"`((?:\w+/)+\w+\.py)`", text))
    assert names
    assert not [name for name in names if not (ROOT / "src" / "mainstem" / name).exists()]
