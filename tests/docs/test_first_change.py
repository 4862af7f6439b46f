"""Executes the tutorial for new contributors, in a copy of the source tree, as a reader would.

The sentence above a block says what is done with it, and this module understands the same words:

    Create `FILE`:                                            a new file
    In `FILE`, below the line `TEXT`, add:                    also: above the line
    In `FILE`, below the line that starts with `TEXT`, add:   also: above the line
    At the end of `FILE`, add:

Blocks of ``sh`` are run one after the other; a ``text`` block holds exactly what the commands
before it print. A block after "In a second terminal" is a node: it is started on free ports.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mainstem.testing.local_node import LocalNode

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "get-started" / "your-first-change.md"
FENCE = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = r"(?P<{0}_ticks>`+)(?P<{0}>.+?)(?P={0}_ticks)"
CREATE = re.compile(f"Create {CODE.format('file')}:$")
INSERT = re.compile(
    f"In {CODE.format('file')}, (?P<side>below|above) the line (?P<starts>that starts with )?"
    f"{CODE.format('anchor')}, add:$"
)
APPEND = re.compile(f"At the end of {CODE.format('file')}, add:$")
SECOND_TERMINAL = re.compile("In (a|the) second terminal")
COPIED = ("src", "tests", "docs", "scripts", "pyproject.toml", "README.md", "CHANGELOG.md")
COMMAND_TIMEOUT_S = 300  # a command may start Spark, on a busy machine


class Step(NamedTuple):
    """A block, and the paragraph above it."""

    said: str
    language: str
    body: str


def steps(text: str) -> Iterator[Step]:
    ended = 0
    for found in FENCE.finditer(text):
        paragraph = text[ended : found.start()].strip("\n").rpartition("\n\n")[2]
        yield Step(paragraph.replace("\n", " "), found["language"], found["body"])
        ended = found.end()


def edited(text: str, step: Step) -> str:
    """The text of a file after the block was inserted.

    Raises:
        AssertionError: the place is not there, or not the only one.
    """
    if APPEND.search(step.said):
        return text + step.body
    place = INSERT.search(step.said)
    assert place is not None, f"nothing says where this goes: {step.said!r}"
    anchor, lines = place["anchor"], text.splitlines(keepends=True)
    fits = [
        number
        for number, line in enumerate(lines)
        if (line.startswith(anchor) if place["starts"] else line == anchor + "\n")
    ]
    assert len(fits) == 1, f"{place['file']} has {len(fits)} lines {anchor!r}"
    at = fits[0] + (place["side"] == "below")
    return "".join([*lines[:at], step.body, *lines[at:]])


class Reader:
    """Somebody who follows the page: a copy of the tree, a shell, and a node at times."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node: LocalNode | None = None
        self.written: list[str] = []
        self.ran = 0
        for name in COPIED:
            # Compiled modules come along: they are valid for the copies, which keep their times.
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, folder / name)
        (folder / ".venv").symlink_to(sys.prefix)

    def write(self, step: Step) -> None:
        said = CREATE.search(step.said) or INSERT.search(step.said) or APPEND.search(step.said)
        assert said is not None, f"nothing says where this goes: {step.said!r}\n{step.body}"
        path = self.folder / said["file"]
        if CREATE.search(step.said):
            assert not path.exists(), f"{path} is there already"
            path.write_text(step.body)
        else:
            path.write_text(edited(path.read_text(), step))
        self.written.append(said["file"])

    def start_node(self, step: Step) -> None:
        command, *arguments = step.body.split()
        assert command == ".venv/bin/mainstemd"
        assert arguments[-2] == "--data-dir"
        self.close()
        self.node = LocalNode(arguments=arguments[:-2], environment=self._environment())
        self.node.start()

    def run(self, step: Step) -> str:
        script = step.body
        assert "mainstemd" not in script, "a node runs until it is stopped: say where"
        if self.node is not None:
            script = script.replace("127.0.0.1:8080", self.node.http)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        self.ran += 1
        assert done.returncode == 0, f"{step.body}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def close(self) -> None:
        if self.node is not None:
            self.node.close()
            self.node = None

    def _environment(self) -> dict[str, str]:
        ours = {
            "PYTHONPATH": f"{self.folder / 'src'}{os.pathsep}{self.folder}",
            "XDG_CONFIG_HOME": str(self.folder / ".config"),
            "NO_COLOR": "1",
        }
        if self.node is not None:
            ours["MAINSTEM_BOOTSTRAP"] = self.node.kafka
        return os.environ | ours


@pytest.mark.needs("curl")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_reader_who_does_what_the_page_says_gets_what_it_shows(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    printed = ""
    try:
        for step in steps(PAGE.read_text()):
            if step.language == "text":
                assert printed == step.body
            elif step.language != "sh":
                reader.write(step)
            elif SECOND_TERMINAL.search(step.said):
                reader.start_node(step)
            else:
                printed = reader.run(step)
    finally:
        reader.close()
    assert len(reader.written) >= 15
    assert reader.ran >= 8


def test_every_block_of_the_page_is_understood() -> None:
    text = PAGE.read_text()
    found = list(steps(text))
    assert len(found) == text.count("\n```") / 2
    for step in found:
        if step.language not in {"sh", "text"}:
            patterns = (CREATE, INSERT, APPEND)
            assert any(each.search(step.said) for each in patterns), step.said


@pytest.mark.parametrize(
    ("said", "text", "wanted"),
    [
        ("In `f`, below the line `a`, add:", "a\nab\n", "a\nNEW\nab\n"),
        ("In `f`, above the line `  a`, add:", "x\n  a\n", "x\nNEW\n  a\n"),
        ("In `f`, below the line that starts with ``| `a` |``, add:", "| `a` | b |\n",
         "| `a` | b |\nNEW\n"),
        ("At the end of `f`, add:", "a\n", "a\nNEW\n"),
    ],
)  # fmt: skip
def test_a_block_goes_where_its_sentence_says(said: str, text: str, wanted: str) -> None:
    assert edited(text, Step(said, "python", "NEW\n")) == wanted


@pytest.mark.parametrize("text", ["b\n", "a\na\n"])
def test_a_place_that_is_missing_or_ambiguous_is_an_error(text: str) -> None:
    with pytest.raises(AssertionError, match="lines 'a'"):
        edited(text, Step("In `f`, below the line `a`, add:", "python", "NEW\n"))
