"""The examples of docs/reference/rest.md do what they say."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from mainstem.testing.local_node import LocalNode

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "rest.md"
EXAMPLE = re.compile(r"^\$ (curl .+)\n(.+)$", re.MULTILINE)


def shape(value: object) -> object:
    """Names and kinds, without the values that differ from run to run."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return type(value).__name__


@pytest.mark.needs("curl")
def test_every_example_answers_as_the_page_says() -> None:
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    examples = [found for block in blocks for found in EXAMPLE.findall(block)]
    assert len(examples) >= 8
    with LocalNode() as node:
        for command, expected in examples:
            done = subprocess.run(
                [
                    "bash",
                    "-c",
                    command.replace("localhost:8080", node.http).replace("curl", "curl -sS", 1),
                ],
                capture_output=True,
                text=True,
                check=True,
                timeout=20,
            )
            assert shape(json.loads(done.stdout)) == shape(json.loads(expected)), command
