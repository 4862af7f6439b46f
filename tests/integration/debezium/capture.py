"""Debezium itself: its engine in a JVM of its own, obtained through Maven, told to a file."""

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from bench.peers.maven import compiled_classpath
from tests.integration.cdc.follow import Told

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
SOURCE = HERE / "Capture.java"
PATIENCE_S = 120.0
COMMON = {
    "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
    "offset.flush.interval.ms": "60000",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "header.converter.schemas.enable": "false",
    "poll.interval.ms": "20",
    "database.hostname": "127.0.0.1",
}

Event = dict[str, Any]
"""What both sides are compared by: topic, key, value, headers, all of it parsed."""


def event(name: str, told: Told) -> Event:
    """A record of ours; those of no table go where Debezium would send them."""
    value = _parsed(told["value"])
    other = "transaction" if "status" in (value or {}) else "message"
    headers = [[each["key"], _parsed(each["value"])] for each in told["headers"] or ()]
    topic = told["topic"] or f"{name}.{other}"
    return {"topic": topic, "key": _parsed(told["key"]), "value": value, "headers": headers}


def _parsed(told: bytes | None) -> Any:
    return None if told is None else json.loads(told)


def is_last_of_snapshot(event: Event) -> bool:
    """Whether the changes come next."""
    return bool(event["value"].get("source", {}).get("snapshot") == "last")


class Debezium:
    """A context manager; one JVM that runs one engine for each name in ``engines``."""

    def __init__(self, folder: Path, engines: Mapping[str, Mapping[str, str]]) -> None:
        self._folder = folder
        self._names = list(engines)
        for name, given in engines.items():
            history = {"schema.history.internal.file.filename": str(folder / f"{name}.history")}
            settings = {"name": name, "topic.prefix": name, **COMMON, **history, **given}
            lines = [f"{key}={value}\n" for key, value in settings.items()]
            (folder / name).write_text("".join(lines))

    def __enter__(self) -> Self:
        path = compiled_classpath(SOURCE, POM)
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC"]
        command = ["java", *options, "-cp", path, "Capture"]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *(str(self._folder / name) for name in self._names)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(self, *problem: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def told(self, name: str) -> list[Event]:
        """Everything that an engine has told until now."""
        path = self._folder / f"{name}.told"
        if not path.exists():
            return []
        whole, _, _ = path.read_text().rpartition("\n")
        events: list[Event] = [json.loads(line) for line in whole.split("\n") if line]
        for each in events:
            # Which process told it, and since when: of no concern to who reads the topic.
            each["headers"] = [pair for pair in each["headers"] if ".context." not in pair[0]]
        return events

    def wait(self, until: Callable[[Event], bool]) -> dict[str, list[Event]]:
        """What every engine has told when it has told an event of this kind."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            told = {name: self.told(name) for name in self._names}
            if all(any(map(until, events)) for events in told.values()):
                return told
            log = (self._folder / "log").read_text()
            assert self._process.poll() is None, log
            assert time.monotonic() < deadline, (log, told)
            time.sleep(0.1)
