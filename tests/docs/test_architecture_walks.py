"""The walks of ARCHITECTURE.md name functions that exist, and follow the layers."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "mainstem"
SECTION = (ROOT / "ARCHITECTURE.md").read_text().partition("## Walks\n")[2].partition("\n## ")[0]
STEP = re.compile(r"`((?:\w+/)+\w+\.py)` `([\w.]+)`")
# Replication passes through three nodes: it goes down to the network more than once.
ACROSS_NODES = "Replicate"


def walks() -> dict[str, list[str]]:
    """The numbered steps of every walk, by its title."""
    found = {}
    for part in re.split(r"^### ", SECTION, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        found[title] = re.split(r"^\d+\. ", body, flags=re.MULTILINE)[1:]
    return found


def layers() -> dict[str, int]:
    """The layer of every package; 0 is the highest."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rows = contracts["contracts"][0]["layers"]
    return {name: rank for rank, row in enumerate(rows) for name in re.findall(r"\w+", row)}


@cache
def names_in(path: str) -> frozenset[str]:
    """Functions, classes and methods of a module."""
    names = set()
    for node in ast.parse((SOURCE / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {
                f"{node.name}.{method.name}"
                for method in node.body
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return frozenset(names)


def test_there_are_walks() -> None:
    assert {title.partition(":")[0] for title in walks()} == {
        "Produce", "Fetch", "Replicate", "AMQP", "Pipeline",
    }  # fmt: skip


@pytest.mark.parametrize("title", walks())
def test_every_step_names_functions_that_exist(title: str) -> None:
    for step in walks()[title]:
        named = STEP.findall(step)
        assert named, f"a step without a module and a function: {step}"
        for path, name in named:
            assert (SOURCE / path).is_file(), path
            assert name in names_in(path), f"{path} has no {name}"


@pytest.mark.parametrize("title", [each for each in walks() if not each.startswith(ACROSS_NODES)])
def test_a_walk_goes_down_the_layers_once_and_up_once(title: str) -> None:
    ranks = layers()
    passed = [
        ranks[path.split("/")[0]] for step in walks()[title] for path, _ in STEP.findall(step)
    ]
    lowest = passed.index(max(passed))
    assert passed[: lowest + 1] == sorted(passed[: lowest + 1]), passed
    assert passed[lowest:] == sorted(passed[lowest:], reverse=True), passed
    assert len(set(passed)) > 1
