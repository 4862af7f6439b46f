"""Files for contributors: what they name exists, and hooks and containers need no other host."""

import configparser
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.tidy.source_tree import ROOT

PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "STYLE.md", "CODE_OF_CONDUCT.md",
         ".github/PULL_REQUEST_TEMPLATE.md", "docs/get-started/your-first-change.md"]  # fmt: skip
MAKEFILE = (ROOT / "Makefile").read_text()
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def hooks() -> list[dict[str, Any]]:
    given = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    return [hook | {"repo": repo["repo"]} for repo in given["repos"] for hook in repo["hooks"]]


def forms() -> list[Path]:
    folder = ROOT / ".github" / "ISSUE_TEMPLATE"
    return sorted(path for path in folder.glob("*.yml") if path.name != "config.yml")


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_that_a_page_names_exists(page: str) -> None:
    targets = set(re.findall(r"^([\w./-]+):", MAKEFILE, re.M))
    text = (ROOT / page).read_text()
    named = set(
        re.findall(r"(?:^|`|\s)make ([a-z][a-z-]*|\.venv/[\w.-]+)(?=`|\s*#|\s*$)", text, re.M)
    )
    assert named - targets == set()


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", ".github/PULL_REQUEST_TEMPLATE.md"])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"(?<![\w/])(?:src|tests|scripts|codegen|docs)/[\w./*-]*[\w/]", text))
    assert named
    assert [name for name in sorted(named) if not list(ROOT.glob(name.rstrip("/")))] == []


def test_contributing_names_every_folder_of_tests() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    folders = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("**/*.py"))}
    assert [name for name in sorted(folders) if f"tests/{name}/" not in text] == []


def test_hooks_are_commands_of_the_virtual_environment() -> None:
    for hook in hooks():
        assert (hook["repo"], hook["language"]) == ("local", "system")
        assert hook["entry"].startswith(".venv/bin/")


def test_hooks_run_the_tools_of_make_check() -> None:
    recipes = re.findall(r"^\t\$\((?:BIN|PYTHON_IN_VENV)\)(?:/([\w-]+)| -m (\w+))", MAKEFILE, re.M)
    tools = {"ruff", "mypy", "lint-imports", "pytest"}
    assert tools <= {word for recipe in recipes for word in recipe}
    used = {word for hook in hooks() for word in re.findall(r"[\w-]+", hook["entry"])}
    assert tools - used == set()


def test_the_container_comes_from_an_image_without_a_host_and_installs_with_make() -> None:
    folder = ROOT / ".devcontainer"
    [image] = re.findall(r"^FROM (\S+)$", (folder / "Dockerfile").read_text(), re.M)
    assert re.fullmatch(r"[a-z]+:[\w.-]+", image)
    given = json.loads((folder / "devcontainer.json").read_text())
    assert given["build"] == {"dockerfile": "Dockerfile"}
    target = given["postCreateCommand"].removeprefix("make ")
    assert re.search(rf"^{re.escape(target)}:", MAKEFILE, re.M)


@pytest.mark.parametrize("form", forms(), ids=lambda form: form.name)
def test_a_form_for_issues_is_complete(form: Path) -> None:
    given = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= given.keys()
    asked = [part for part in given["body"] if part["type"] != "markdown"]
    names = [part["id"] for part in asked]
    assert len(names) == len(set(names))
    assert all(part["attributes"]["label"] for part in asked)
    assert any(part.get("validations", {}).get("required") for part in asked)


def test_editors_break_lines_where_ruff_does() -> None:
    text = (ROOT / ".editorconfig").read_text()
    editor = configparser.ConfigParser()
    editor.read_string("[preamble]\n" + text)
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert editor["*.py"].getint("max_line_length") == ruff["line-length"]
    assert editor["Makefile"]["indent_style"] == "tab"


def test_changes_are_listed_by_version_newest_first() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    first, *released = re.findall(r"^## (.+)$", text, re.M)
    assert first == "Unreleased"
    dated = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) - (\d{4}-\d\d-\d\d)", title) for title in released]
    versions = [tuple(map(int, found.groups()[:3])) for found in dated if found]
    assert len(versions) == len(released) > 0
    assert versions == sorted(versions, reverse=True)
    dates = [found[4] for found in dated if found]
    assert dates == sorted(dates, reverse=True)


def test_changes_of_a_version_stand_in_the_usual_order() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    for version in re.split(r"^## ", text, flags=re.M)[1:]:
        kinds = re.findall(r"^### (.+)$", version, re.M)
        assert kinds == sorted(set(kinds), key=KINDS.index), version.splitlines()[0]
