"""Scenario files: a command, a line ``----``, what it must print. Read them as documentation.

Blocks are parted by empty lines; lines that start with ``#`` are comments. The folder, or the first
word of the file name, says which script runs it.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kit.simulation.coordination.consumer_group_script import ConsumerGroupScript
from tests.kit.simulation.coordination.group_script import GroupScript
from tests.kit.simulation.coordination.transaction_script import TransactionScript
from tests.kit.simulation.raft.script import RaftScript
from tests.scenarios.queue_script import QueueScript
from tests.scenarios.range_script import RangeScript

SCRIPTS: dict[str, Callable[[], Callable[[str], str]]] = {
    "consumer": lambda: ConsumerGroupScript().run,
    "failover": lambda: RangeScript().run,
    "group": lambda: GroupScript().run,
    "raft": lambda: RaftScript().run,
    "redelivery": lambda: QueueScript().run,
    "seal": lambda: RangeScript().run,
    "transaction": lambda: TransactionScript().run,
}
FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.rglob("*.txt"))


def name_of(path: Path) -> str:
    return path.relative_to(FOLDER).with_suffix("").as_posix()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_scenario_prints_what_its_file_says(path: Path, request: pytest.FixtureRequest) -> None:
    run = SCRIPTS[re.split("[_/]", name_of(path))[0]]()
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
