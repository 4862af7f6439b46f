"""Every relative link of every Markdown file leads to a file, and to a heading if it names one."""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.splitlines()
    if (ROOT / name).is_file()
)
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
FILES_MAX = 22


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors that code hosts, and the site, give to the headings of a page."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text())):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        number = 0
        while (name := slug if not number else f"{slug}-{number}") in found:
            number += 1
        found.add(name)
    return frozenset(found)


def links(page: Path) -> list[str]:
    """The relative links of a page, without those that are code."""
    text = CODE.sub("", FENCE.sub("", page.read_text()))
    return [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]


def problem(page: Path, link: str) -> str | None:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return f"{link}: there is no such file"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{link}: there is no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert not [found for link in links(page) if (found := problem(page, link)) is not None]


def test_there_are_links_to_check() -> None:
    assert sum(len(links(page)) for page in PAGES) > 200


def test_a_dead_link_and_a_dead_anchor_are_found() -> None:
    page = DOCS / "README.md"
    assert problem(page, "no-such-page.md") is not None
    assert problem(page, "README.md#no-such-heading") is not None
    assert problem(page, "README.md#documentation") is None


def nav_entries(entry: object) -> list[str]:
    """The pages of a part of the navigation."""
    if isinstance(entry, str):
        return [entry]
    if isinstance(entry, dict):
        return [page for value in entry.values() for page in nav_entries(value)]
    assert isinstance(entry, list)
    return [page for each in entry for page in nav_entries(each)]


def site_settings() -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    return settings


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    settings = site_settings()
    listed = nav_entries(settings["nav"])
    pages = {page.relative_to(DOCS).as_posix() for page in PAGES if page.is_relative_to(DOCS)}
    added = set(settings["extra"]["pages_outside_docs"].values())
    assert sorted(listed) == sorted(pages | added)


def test_the_pages_that_the_site_adds_exist() -> None:
    settings = site_settings()
    assert not [
        name for name in settings["extra"]["pages_outside_docs"] if not (ROOT / name).is_file()
    ]


def test_the_site_loads_nothing_from_other_servers() -> None:
    """Fonts and plugins of MkDocs Material would fetch assets from a delivery network."""
    settings = site_settings()
    assert settings["theme"]["font"] is False
    assert settings["plugins"] == ["search"]
    text = (ROOT / "mkdocs.yml").read_text()
    assert not re.search(r"https?://", text)


def test_every_module_that_a_page_names_exists() -> None:
    """Some pages name modules relative to their package."""
    files = [
        path.as_posix()
        for folder in ("src", "tests", "bench", "scripts", "codegen")
        for path in (ROOT / folder).rglob("*.py")
    ]
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in PAGES
        # History, and a tutorial that creates files.
        if page.name not in {"CHANGELOG.md", "your-first-change.md"}
        for name in set(re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text()))
        if not any(file.endswith(f"/{name}") for file in files)
    ]
    assert not missing


def test_folders_of_pages_stay_small() -> None:
    counts = {
        folder.relative_to(ROOT).as_posix(): sum(path.is_file() for path in folder.iterdir())
        for folder in [DOCS, *(path for path in DOCS.rglob("*") if path.is_dir())]
    }
    assert not {folder: count for folder, count in counts.items() if count > FILES_MAX}
