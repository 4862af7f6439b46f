"""Scenario files: a command, a line ``----``, what it must print. Read them as documentation.

Blocks are parted by empty lines; lines that start with ``#`` are comments. The first word of a file
name says which world plays it.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from mainstem.testing.simulation.coordination.consumer_group_script import ConsumerGroupScript
from mainstem.testing.simulation.coordination.group_script import GroupScript
from mainstem.testing.simulation.coordination.transaction_script import TransactionScript
from mainstem.testing.simulation.raft.script import RaftScript

WORLDS: dict[str, Callable[[], Callable[[str], str]]] = {
    "consumer": lambda: ConsumerGroupScript().run,
    "group": lambda: GroupScript().run,
    "raft": lambda: RaftScript().run,
    "transaction": lambda: TransactionScript().run,
}
FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario_prints_what_its_file_says(path: Path, request: pytest.FixtureRequest) -> None:
    run = WORLDS[path.stem.split("_")[0]]()
    said = path.read_text()
    played = "\n\n".join(play(run, block) for block in said.strip().split("\n\n")) + "\n"
    if request.config.getoption("--rewrite", default=False):
        path.write_text(played)
    else:
        assert played == said


def play(run: Callable[[str], str], block: str) -> str:
    """The block with its output as it is now."""
    before, _, _ = block.partition("\n----")
    commands = [line for line in before.splitlines() if line and not line.startswith("#")]
    if not commands:
        return before
    printed = "\n".join(filter(None, (run(command) for command in commands))) or "(nothing)"
    return f"{before}\n----\n{printed}"
