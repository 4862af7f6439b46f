"""The command line for queues, exchanges, bindings and dead letters."""

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.several import node_under_test
from tests.kit.waiting import wait_until

from mainstem.cli.main import main
from mainstem.testing.local_node import LocalNode


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with node_under_test() as node:
        yield node


class Shell:
    """Runs commands against the node and gives their answers as JSON."""

    def __init__(self, node: LocalNode, capsys: pytest.CaptureFixture[str]) -> None:
        self._http = f"http://{node.http}"
        self._capsys = capsys

    def __call__(self, *words: str) -> Any:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--http", self._http, "-o", "json"])
        said = self._capsys.readouterr()
        assert ended.value.code in (0, None), said.err
        return json.loads(said.out)

    def refused(self, *words: str) -> str:
        """The code of the refusal."""
        with pytest.raises(SystemExit) as ended:
            main([*words, "--http", self._http, "-o", "json"])
        assert ended.value.code
        return str(json.loads(self._capsys.readouterr().err)["error"]["code"])


@pytest.fixture
def shell(node: LocalNode, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(node, capsys)


def test_a_queue_from_its_declaration_to_its_end(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = shell("queue", "declare", "jobs", "-a", "x-max-length=10")
    stored = shell("queue", "publish", "jobs", "one", "two", "-H", "colour=red")
    monkeypatch.setattr("sys.stdin", io.StringIO("three\nfour\n"))
    shell("queue", "publish", "jobs")
    seen = shell("queue", "get", "jobs", "--keep", "--count", "4")
    taken = shell("queue", "get", "jobs")
    listed = shell("queue", "list")
    purged = shell("queue", "purge", "jobs", "--yes")
    described = shell("queue", "describe", "jobs")
    deleted = shell("queue", "delete", "jobs", "--if-empty")

    assert made["arguments"] == {"x-max-length": 10}
    assert stored == {"stored": 2, "unrouted": 0}
    assert [each["value"] for each in seen] == ["one", "two", "three", "four"]
    assert [each["value"] for each in taken] == ["one"]
    assert [(each["name"], each["ready"]) for each in listed] == [("jobs", 3)]
    assert purged == {"messages": 3}
    assert described["total"] == 0
    assert deleted == {"deleted": "jobs", "messages": 0}
    assert shell.refused("queue", "describe", "jobs") == "UNKNOWN_QUEUE"


def test_exchanges_and_bindings(shell: Shell) -> None:
    shell("queue", "declare", "eu")
    made = shell("exchange", "declare", "orders", "--type", "topic")
    shell("binding", "create", "orders", "eu", "--key", "eu.*")
    stored = shell("queue", "publish", "orders", "hello", "--exchange", "--key", "eu.1")
    bindings = shell("binding", "list")
    shell("binding", "delete", "orders", "eu", "--key", "eu.*")

    assert (made["type"], made["topic"]) == ("topic", "orders")
    assert stored == {"stored": 1, "unrouted": 0}
    assert [each["key"] for each in bindings] == ["eu.*"]
    assert shell("binding", "list") == []
    shell("exchange", "delete", "orders")
    assert "orders" not in [each["name"] for each in shell("exchange", "list")]


def test_dead_letters_are_listed_shown_and_replayed(shell: Shell) -> None:
    shell("queue", "declare", "morgue")
    to_morgue = ("-a", "x-dead-letter-exchange=", "-a", "x-dead-letter-routing-key=morgue")
    shell("queue", "declare", "short", "-a", "x-max-length=1", *to_morgue)
    shell("queue", "publish", "short", "one", "two", "three")

    def both() -> list[dict[str, Any]]:  # letters are written after what was published is confirmed
        found: list[dict[str, Any]] = shell("queue", "dead-letters", "list", "morgue")
        return found if len(found) > 1 else []

    letters = wait_until(both)
    shown = shell("queue", "dead-letters", "show", "morgue", str(letters[0]["sequence"]))
    shell("queue", "declare", "elsewhere")
    moved = shell("queue", "move", "morgue", "elsewhere", "--limit", "1")
    shell("queue", "purge", "short", "--yes")
    replayed = shell("queue", "dead-letters", "replay", "morgue", "--where", "reason=maxlen")

    assert [(each["reason"], each["queue"]) for each in letters] == [("maxlen", "short")] * 2
    assert (shown["value"], shown["deaths"][0]["reason"]) == ("one", "maxlen")
    assert (moved, replayed) == ({"messages": 1}, {"messages": 1})
    assert [each["value"] for each in shell("queue", "get", "short")] == ["two"]
