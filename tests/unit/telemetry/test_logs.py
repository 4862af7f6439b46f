"""Log lines: one line per event, no secrets, no floods."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from mainstem.telemetry import logs
from mainstem.telemetry.logs import REPEAT_WINDOW_S, REPEATS_WRITTEN, RepeatFilter, redact


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger(logs.PACKAGE)
    handlers, level, propagate = list(root.handlers), root.level, root.propagate
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    root.propagate = propagate


def one_line(style: str, out: io.StringIO, **extra: object) -> str:
    logs.configure(level="info", style=style, out=out)
    logs.logger("node").info("ready", extra=extra)
    return out.getvalue()


def test_json_lines_carry_the_facts() -> None:
    line = json.loads(one_line("json", io.StringIO(), kafka="127.0.0.1:9092", startup_ms=12))
    assert line["component"] == "node"
    assert line["level"] == "info"
    assert line["message"] == "ready"
    assert (line["kafka"], line["startup_ms"]) == ("127.0.0.1:9092", 12)
    assert line["time"].endswith("Z")


def test_text_lines_put_the_facts_behind_the_sentence() -> None:
    text = one_line("text", io.StringIO(), kafka="127.0.0.1:9092", why="two words")
    assert text.endswith('INFO  node: ready kafka=127.0.0.1:9092 why="two words"\n')


def test_auto_is_text_on_a_terminal_and_json_elsewhere() -> None:
    assert "INFO" in one_line("auto", Terminal())
    assert json.loads(one_line("auto", io.StringIO()))["level"] == "info"


def test_a_line_names_the_room_whatever_the_module() -> None:
    out = io.StringIO()
    logs.configure(level="info", style="json", out=out)
    logging.getLogger("mainstem.log.recovery").info("cut")
    assert json.loads(out.getvalue())["component"] == "log"


def test_lines_below_the_level_are_not_written() -> None:
    out = io.StringIO()
    logs.configure(level="warning", style="json", out=out)
    logs.logger("log").info("quiet")
    assert out.getvalue() == ""


def test_configuring_twice_writes_once() -> None:
    out = io.StringIO()
    logs.configure(level="info", style="json", out=out)
    logs.configure(level="info", style="json", out=out)
    logs.logger("log").info("once")
    assert len(out.getvalue().splitlines()) == 1


@pytest.mark.parametrize("style", ["json", "text"])
def test_a_line_stays_one_line_whatever_it_holds(style: str) -> None:
    assert len(one_line(style, io.StringIO(), path="a\nb").splitlines()) == 1


@pytest.mark.parametrize("style", ["json", "text"])
def test_secrets_are_blanked(style: str) -> None:
    text = one_line(
        style,
        io.StringIO(),
        password="hunter2",
        api_key="hunter2",
        settings={"sasl_password": "hunter2", "user": "x"},
        url="kafka://me:hunter2@host",
    )
    assert "hunter2" not in text
    assert text.count("***") == 4


def test_secrets_in_sentences_are_blanked() -> None:
    assert redact("login with password=hunter2 failed") == "login with password=*** failed"


def test_exceptions_are_part_of_the_event() -> None:
    out = io.StringIO()
    logs.configure(level="info", style="json", out=out)
    try:
        int("token: abc")
    except ValueError:
        logs.logger("node").exception("it failed")
    line = json.loads(out.getvalue())
    assert "ValueError" in line["exception"]
    assert "abc" not in line["exception"]


def record(message: str, created: float) -> logging.LogRecord:
    made = logging.LogRecord("mainstem.node", logging.INFO, "", 0, message, None, None)
    made.created = created
    return made


def test_a_repeating_sentence_is_written_a_few_times_then_counted() -> None:
    repeats = RepeatFilter()
    written = [repeats.filter(record("again", 1.0)) for _ in range(100)]
    assert sum(written) == REPEATS_WRITTEN
    assert repeats.filter(record("another", 1.0))
    late = record("again", 1.0 + REPEAT_WINDOW_S)
    assert repeats.filter(late)
    assert logs.facts(late)["left_out"] == 100 - REPEATS_WRITTEN


def test_the_memory_of_sentences_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "REPEATS_REMEMBERED_MAX", 3)
    repeats = RepeatFilter()
    for number in range(10):
        repeats.filter(record(str(number), 1.0))
    assert len(repeats._seen) == 3
