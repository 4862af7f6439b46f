"""``mainstem log verify`` on the files of a real node."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstem.cli.errors import ExitCode
from mainstem.testing.local_node import LocalNode

COMMAND = str(Path(sys.executable).with_name("mainstem"))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    data_dir = tmp_path_factory.mktemp("node") / "data"
    with LocalNode(data_dir) as node:
        for value in ("first", "second"):
            mainstem("produce", "verified", value, "-b", node.kafka)
        busy = mainstem("log", "verify", str(data_dir), expect=ExitCode.UNAVAILABLE)
        assert "running node" in busy.stderr
        node.stop()
        yield data_dir


def mainstem(*words: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [COMMAND, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == expect, done.stderr
    return done


def segment(data_dir: Path) -> Path:
    [path] = (data_dir / "topics").glob("verified~*/*/*/*.log")
    return path


def test_sound_files_are_reported_as_sound(stopped: Path) -> None:
    assert mainstem("log", "verify", str(stopped)).stdout == f"no damage found in {stopped}\n"
    assert json.loads(mainstem("log", "verify", str(stopped), "-o", "json").stdout) == []


def test_a_flipped_byte_is_found_and_named(stopped: Path) -> None:
    path = segment(stopped)
    sound = path.read_bytes()
    damaged = bytearray(sound)
    damaged[-1] ^= 0x01
    path.write_bytes(damaged)
    try:
        done = mainstem("log", "verify", str(stopped), "-o", "json", expect=ExitCode.CORRUPT)
    finally:
        path.write_bytes(sound)
    [finding] = json.loads(done.stdout)
    assert finding["file"] == str(path)
    assert finding["offset"] == 1
    assert "checksum" in finding["cause"]


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_a_folder_that_no_node_used_is_refused(tmp_path: Path, folder: str) -> None:
    mainstem("log", "verify", str(tmp_path / folder), expect=ExitCode.USAGE)
