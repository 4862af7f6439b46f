"""Runs the code blocks of README and docs against a real node, so that they stay true.

A fenced block is run when its info string says so, and all blocks of a page run in order against
one fresh node:

    ```sh run                 bash, stops at the first failing command
    ```sh run needs=kcat      skips the page where the tool is missing
    ```python run             this interpreter
    ```text output            what the block before it must have printed

Pages speak of a node on its usual ports; here it listens on free ones, so addresses are replaced.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mainstem.testing.local_node import LocalNode

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK_TIMEOUT_S = 60


class Block(NamedTuple):
    """One block to run and what it must print, if the page says so."""

    line: int
    language: str
    needs: tuple[str, ...]
    body: str
    output: str | None


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page that are meant to be run."""
    text = page.read_text()
    fences = list(FENCE.finditer(text))
    for index, fence in enumerate(fences):
        language, *words = fence["info"].split() or [""]
        if "run" not in words:
            continue
        following = fences[index + 1] if index + 1 < len(fences) else None
        output = None
        if following is not None and following["info"].split()[1:] == ["output"]:
            output = following["body"]
        yield Block(
            line=text.count("\n", 0, fence.start()) + 1,
            language=language,
            needs=tuple(word.removeprefix("needs=") for word in words if word.startswith("needs=")),
            body=fence["body"],
            output=output,
        )


def pages() -> list[object]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        pytest.param(
            page,
            id=page.relative_to(ROOT).as_posix(),
            marks=[pytest.mark.needs(name) for block in blocks(page) for name in block.needs],
        )
        for page in found
        if any(blocks(page))
    ]


def on_this_node(text: str, node: LocalNode) -> str:
    for usual, here in (
        ("127.0.0.1:9092", node.kafka),
        ("127.0.0.1:8080", node.http),
        (".venv/bin/", ""),
    ):
        text = text.replace(usual, here)
    return text


def run(block: Block, node: LocalNode, folder: Path) -> subprocess.CompletedProcess[str]:
    runners = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
    assert block.language in runners, f"line {block.line}: cannot run {block.language!r}"
    environment = os.environ | {
        "MAINSTEM_BOOTSTRAP": node.kafka,
        "NO_COLOR": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return subprocess.run(
        [*runners[block.language], on_this_node(block.body, node)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BLOCK_TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize("page", pages())
@pytest.mark.timeout(300)
def test_the_code_blocks_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    with LocalNode(arguments=["--preset", "local"]) as node:
        for block in blocks(page):
            done = run(block, node, tmp_path)
            where = f"{page.relative_to(ROOT)}:{block.line}"
            assert done.returncode == 0, f"{where} failed\n{done.stdout}\n{node.log_tail()}"
            if block.output is not None:
                assert done.stdout.strip() == block.output.strip(), (
                    f"{where} printed something else"
                )
