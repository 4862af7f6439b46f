"""Runs the code blocks of README and docs against a real node, so that they stay true.

A fenced block is run when its info string says so, and all blocks of a page run in order against
one fresh node:

    ```sh run                 bash, stops at the first failing command
    ```sh run needs=kcat      skips the page where the tool is missing
    ```python run             this interpreter
    ```text output            what the block before it must have printed
    ```toml file=node.toml    written to a file, ~ is the folder that the page runs in
    ```sh background          a node of the page's own: awaited, and killed when the page ends

Pages speak of a node on its usual ports; here it listens on free ones, so addresses are replaced.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mainstem.testing.local_node import READY_MARK, LocalNode
from mainstem.testing.ports import free_ports

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK_TIMEOUT_S = 300  # a page may start Spark, on a busy machine
READY_TIMEOUT_S = 30
# Where pages let nodes of their own listen.
OWN_PORTS = (9093, 9094, 8443, 8444)


class Block(NamedTuple):
    """One block, what is done with it, and what it must print, if the page says so."""

    line: int
    verb: str
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
        verbs = [word for word in words if word in ("run", "background") or word[:5] == "file="]
        if not verbs:
            continue
        following = fences[index + 1] if index + 1 < len(fences) else None
        output = None
        if following is not None and following["info"].split()[1:] == ["output"]:
            output = following["body"]
        yield Block(
            line=text.count("\n", 0, fence.start()) + 1,
            verb=verbs[0],
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


class Ground:
    """Where the blocks of one page run: a node, a folder, and the nodes that the page starts."""

    def __init__(self, node: LocalNode, folder: Path) -> None:
        self.node = node
        self.folder = folder
        self._places = [
            ("127.0.0.1:9092", node.kafka),
            ("127.0.0.1:8080", node.http),
            ("127.0.0.1:5672", node.amqp),
            ('"127.0.0.1", 1883', '"127.0.0.1", ' + node.mqtt.rpartition(":")[2]),
            ("127.0.0.1:1883", node.mqtt),
            ("-h 127.0.0.1 -p 1883", "-h 127.0.0.1 -p " + node.mqtt.rpartition(":")[2]),
            ("127.0.0.1:2925", node.native),
            (".venv/bin/", ""),
        ]
        self._ports = dict(zip(map(str, OWN_PORTS), free_ports(len(OWN_PORTS)), strict=True))
        self._own: list[subprocess.Popen[bytes]] = []

    def here(self, text: str) -> str:
        for usual, here in self._places:
            text = text.replace(usual, here)
        own = "|".join(self._ports)
        return re.sub(rf"\b({own})\b", lambda found: str(self._ports[found[1]]), text)

    def run(self, block: Block) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(block),
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BLOCK_TIMEOUT_S,
            check=False,
        )

    def write(self, block: Block) -> None:
        name = block.verb.removeprefix("file=").removeprefix("~/")
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.here(block.body))

    def start(self, block: Block) -> None:
        log = self.folder / f"background-{block.line}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self._command(block),
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._own.append(process)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not re.search(rf"^{READY_MARK}.*\n", log.read_text(), re.MULTILINE):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)

    def close(self) -> None:
        for process in self._own:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _command(self, block: Block) -> list[str]:
        runners = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
        assert block.language in runners, f"line {block.line}: cannot run {block.language!r}"
        return [*runners[block.language], self.here(block.body)]

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "MAINSTEM_BOOTSTRAP": self.node.kafka,
            "MAINSTEM_HTTP": f"http://{self.node.http}",
            "NO_COLOR": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(self.folder / ".config"),
        }


@pytest.mark.parametrize("page", pages())
@pytest.mark.timeout(600)
def test_the_code_blocks_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    with (
        LocalNode(arguments=["--preset", "local"]) as node,
        contextlib.closing(Ground(node, tmp_path)) as ground,
    ):
        for block in blocks(page):
            if block.verb == "background":
                ground.start(block)
                continue
            if block.verb != "run":
                ground.write(block)
                continue
            done = ground.run(block)
            where = f"{page.relative_to(ROOT)}:{block.line}"
            assert done.returncode == 0, f"{where} failed\n{done.stdout}\n{node.log_tail()}"
            if block.output is not None:
                assert done.stdout.strip() == ground.here(block.output).strip(), (
                    f"{where} printed something else"
                )
