"""amqplib, unmodified, on a real node."""

import subprocess
from pathlib import Path

import pytest

from mainstem.testing.local_node import LocalNode

FOLDER = Path(__file__).parent / "amqplib"


@pytest.mark.needs("npm")
def test_amqplib_confirms_routes_settles_and_asks(amqp_node: LocalNode) -> None:
    installed = FOLDER / "node_modules" / ".package-lock.json"
    if not installed.exists():
        command = ["npm", "ci", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2_000:]
    command = ["node", str(FOLDER / "story.js"), f"amqp://guest:guest@{amqp_node.amqp}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all is well\n"
