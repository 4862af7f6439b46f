"""The page of resources names bounds that exist."""

import re
from collections import Counter

from tests.tidy.source_tree import ROOT, SRC, modules

from mainstem.node.config.setting_spec import leaves

PAGE = (ROOT / "docs" / "internals" / "resources.md").read_text()
TABLES = PAGE[PAGE.index("## Every bound") :]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLES.splitlines()
    if line.startswith("| ") and not line.startswith("| resource ")
]
METRICS = set(
    re.findall(r"^\| `(mainstem_\w+)` \|", (ROOT / "docs/reference/metrics.md").read_text(), re.M)
)


SOURCES = {name: module.text for name, module in modules().items()}
LIMITS = "model/limits.py"


def constants(text: str) -> set[str]:
    """The names that a module gives values to."""
    return set(re.findall(r"^([A-Z][A-Z0-9_]+)(?:: [^=\n]+)? = ", text, re.M))


def test_there_are_rows() -> None:
    assert len(ROWS) > 30
    assert all(len(row) == 5 for row in ROWS)


def test_every_owner_exists() -> None:
    owners = {owner for row in ROWS for owner in re.findall(r"`([\w/]+\.py)`", row[1])}
    assert owners
    assert {owner for owner in owners if not (SRC / owner).is_file()} == set()


def test_every_constant_exists() -> None:
    named = set(
        re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", PAGE[: PAGE.index("## Disk")] + TABLES)
    )
    assert named
    assert named - set().union(*map(constants, SOURCES.values())) == set()


def test_every_setting_exists() -> None:
    named = {name for row in ROWS for name in re.findall(r"`([a-z_]+\.[a-z_]+)`", row[2])}
    assert named
    assert named - leaves().keys() == set()


def test_every_metric_is_documented() -> None:
    named = {name for row in ROWS for name in re.findall(r"`(mainstem_\w+)`", row[4])}
    assert named
    assert named - METRICS == set()


def test_every_limit_of_the_model_is_used() -> None:
    others = " ".join(text for path, text in SOURCES.items() if path != LIMITS)
    counted = Counter(re.findall(r"\b[A-Z][A-Z0-9_]+\b", others))
    within = SOURCES[LIMITS]
    unused = {
        name
        for name in constants(within)
        # Imported and used, or used through the module, or part of another limit.
        if counted[name] < 2
        and f"limits.{name}" not in others
        and not re.search(rf"= .*\b{name}\b", within)
    }
    assert unused == set()
