"""What one command runs."""

import re
from argparse import Namespace

from tests.chaos.suite import command_of, option_parser, parts


def names(*arguments: str) -> list[str]:
    return list(parts(option_parser().parse_args(arguments)))


def test_the_defaults_are_all_faults_of_every_kind() -> None:
    found = names()
    faults = [re.fullmatch(r"(\d+) faults in a cluster of three, seed \d+", name) for name in found]
    assert sum(int(match.group(1)) for match in faults if match) >= 300
    for wanted in (
        "kill -9, 20 rounds, seed 0",
        "2000 transactions, seed 4",
        "faults that last",
        "20 faults in a cluster of mixed versions, seed 0",
        "2000 transactions in a cluster of three, seed 0",
        "2000 transactions under partitions and power loss, seed 0",
        "loss of power 5",
        "a disk that skips syncs",
    ):
        assert wanted in found


def test_what_is_not_wanted_is_not_run() -> None:
    arguments = ("--rounds", "0", "--transactions", "0", "--power-rounds", "0")
    assert all("faults" in name for name in names(*arguments))
    assert names(*arguments, "--cluster-faults", "0") == []


def test_the_command_of_a_part_runs_that_part_alone() -> None:
    options = option_parser().parse_args(["--cluster-faults", "25", "--seed", "3", "--fresh"])
    name = "5 faults in a cluster of three, seed 4"
    command = command_of(options, name)
    assert command == f"scripts/chaos --cluster-faults 25 --seed 3 --only '{name}'"
    again = Namespace(**vars(options) | {"fresh": False})
    assert [one for one in parts(again) if name in one] == [name]
