"""The cluster and metrics of clients from the command line."""

import json
from collections.abc import Callable, Iterator

import pytest

from mainstem.cli.errors import ExitCode
from mainstem.cli.main import main
from mainstem.testing.local_node import LocalNode


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with LocalNode(arguments=["--preset", "local"]) as running:
        yield running


@pytest.fixture
def run(
    node: LocalNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Runs a command in this process; what it printed, or the error it ended with."""
    monkeypatch.setenv("MAINSTEM_BOOTSTRAP", node.kafka)

    def run_command(*words: str, ends_with: ExitCode = ExitCode.OK) -> str:
        with pytest.raises(SystemExit) as ended:
            main(words)
        captured = capsys.readouterr()
        assert (ended.value.code or 0) == ends_with, captured.err
        return captured.out if ends_with == ExitCode.OK else captured.err

    return run_command


def test_the_cluster_is_described(node: LocalNode, run: Callable[..., str]) -> None:
    found = json.loads(run("cluster", "describe", "-o", "json"))
    assert found["nodes"] == [f"1 at {node.kafka}"]
    assert (found["quorum_leader"], found["voters"], found["observers"]) == (1, [1], [])
    assert found["quorum_end"] > 1


def levels(run: Callable[..., str]) -> dict[str, int]:
    rows = json.loads(run("cluster", "features", "-o", "json"))
    return {row["name"]: row["level"] for row in rows}


def test_a_feature_is_switched_off_and_on(run: Callable[..., str]) -> None:
    assert levels(run) == {
        "group.version": 1,
        "mainstem.version": 2,
        "share.version": 1,
        "transaction.version": 2,
    }
    said = run("cluster", "set-feature", "group.version=0", "--dry-run")
    assert "group.version could be at level 0" in said
    assert levels(run)["group.version"] == 1
    assert "is now at level 0" in run("cluster", "set-feature", "group.version=0")
    assert levels(run) == {
        "group.version": 0,
        "mainstem.version": 2,
        "share.version": 1,
        "transaction.version": 2,
    }
    run("cluster", "set-feature", "group.version=1")
    assert levels(run) == {
        "group.version": 1,
        "mainstem.version": 2,
        "share.version": 1,
        "transaction.version": 2,
    }
    for wrong in ("group.version=9", "streams.version=1"):
        refused = run("cluster", "set-feature", wrong, ends_with=ExitCode.FAILED)
        assert "INVALID_FEATURE_LEVEL" in refused
    run("cluster", "set-feature", "group.version", ends_with=ExitCode.USAGE)


def test_a_node_that_runs_or_never_was_is_not_forgotten(run: Callable[..., str]) -> None:
    assert "UNKNOWN_NODE" in run(
        "cluster", "unregister", "7", "--yes", ends_with=ExitCode.NOT_FOUND
    )
    assert "the node is running" in run(
        "cluster", "unregister", "1", "--yes", ends_with=ExitCode.FAILED
    )


def test_a_subscription_lives_from_set_to_delete(run: Callable[..., str]) -> None:
    run("client-metrics", "set", "sub", "-m", "org.a", "-m", "org.b", "--match", "client_id=x.*")
    run("client-metrics", "set", "sub", "--interval-ms", "5000")
    rows = json.loads(run("client-metrics", "list", "-o", "json"))
    assert rows == [
        {"name": "sub", "metrics": "org.a,org.b", "interval_ms": 5_000, "match": "client_id=x.*"}
    ]
    refused = run(
        "client-metrics", "set", "sub", "--match", "color=red",
        ends_with=ExitCode.BAD_CONFIGURATION,
    )  # fmt: skip
    assert "client_software_name" in refused
    run("client-metrics", "set", "sub", ends_with=ExitCode.USAGE)
    run("client-metrics", "delete", "sub")
    assert json.loads(run("client-metrics", "list", "-o", "json")) == []
    run("client-metrics", "delete", "sub", ends_with=ExitCode.NOT_FOUND)
    run("client-metrics", "delete", "sub", "--if-exists")


def test_the_scorecard_needs_no_broker(run: Callable[..., str]) -> None:
    rows = {row["name"]: row for row in json.loads(run("kafka-apis", "--offline", "-o", "json"))}
    assert len(rows) == 71
    assert rows["PushTelemetry"]["test"].startswith("tests/integration/")
    assert rows["PushTelemetry"]["reason"] is None
    assert rows["ShareFetch"]["served"]
    assert not rows["StreamsGroupHeartbeat"]["served"]
    assert rows["StreamsGroupHeartbeat"]["reason"]
