"""The commands that need no Spark: they answer at once, with documented exit codes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mainstem.cli.errors import ExitCode
from mainstem.cli.main import main
from mainstem.pipelines.running.restart_policy import PipelineState
from mainstem.pipelines.running.state_folder import StateFolder
from mainstem.pipelines.running.status import PipelineStatus, Status, write_status

Run = Callable[..., str]

GOOD = """
version: "1.0"
broker: {bootstrap_servers: ["127.0.0.1:9"], connection_timeout_ms: 300}
sources:
  orders: {connector: datagen, topic: orders, config: {seed: "${SEED:-3}"}}
sinks:
  show: {connector: stdout, topics: [orders, "x.*"], offset_commit_interval: 5}
settings: {state_dir: STATE}
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command of ``mainstem pipeline`` in this process."""

    def run_command(*words: object, ends_with: ExitCode = ExitCode.OK) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["pipeline", *map(str, words)])
        captured = capsys.readouterr()
        assert (ended.value.code or 0) == ends_with, captured.out + captured.err
        return captured.out + captured.err

    return run_command


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD.replace("STATE", str(tmp_path / "state")))
    return path


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.yaml"
    path.write_text("version: '1.0'\nsources:\n  a: {connector: datagenn, topic: t, enabld: 1}\n")
    return path


def test_validate_says_that_a_file_is_good_and_what_to_look_at(run: Run, good: Path) -> None:
    said = run("validate", good)
    assert "2 pipelines, no problems" in said
    assert f"{good}:7:78: warning: sinks.show.offset_commit_interval: has no effect" in said
    found = json.loads(run("validate", good, "-o", "json"))
    assert found["pipelines"] == ["sources.orders", "sinks.show"]


def test_validate_tells_every_problem_in_the_form_of_compilers(run: Run, broken: Path) -> None:
    said = run("validate", broken, ends_with=ExitCode.BAD_CONFIGURATION)
    assert f"{broken}:3:18: sources.a.connector: there is no connector 'datagenn'" in said
    assert f"{broken}:3:38: sources.a.enabld: unknown key (did you mean enabled?)" in said
    assert "2 problems; nothing was started" in said


def test_problems_come_as_json_when_asked(run: Run, broken: Path) -> None:
    said = run("validate", broken, "-o", "json", ends_with=ExitCode.BAD_CONFIGURATION)
    problems = json.loads(said)["problems"]
    assert [(each["path"], each["line"]) for each in problems] == [
        ("sources.a.connector", 3),
        ("sources.a.enabld", 3),
    ]


def test_other_commands_tell_problems_too(run: Run, broken: Path) -> None:
    for command in ("run", "check", "status", "sources"):
        assert "2 problems" in run(command, broken, ends_with=ExitCode.BAD_CONFIGURATION)


def test_a_file_that_is_not_there(run: Run, tmp_path: Path) -> None:
    assert "none.yaml" in run("validate", tmp_path / "none.yaml", ends_with=ExitCode.NOT_FOUND)


def test_check_asks_the_broker_and_every_connector(run: Run, good: Path) -> None:
    said = run("check", good, "-o", "json", ends_with=ExitCode.UNAVAILABLE)
    found = {each["what"]: each for each in json.loads(said)}
    assert found["broker"]["result"] == "error"
    assert "127.0.0.1:9" in found["broker"]["message"]
    assert found["sources.orders"]["result"] == "ok"


def test_only_the_pipelines_asked_for_are_looked_at(run: Run, good: Path) -> None:
    said = run("check", good, "--only", "show", "-o", "json", ends_with=ExitCode.UNAVAILABLE)
    assert [each["what"] for each in json.loads(said)] == ["broker", "sinks.show"]
    said = run("check", good, "--only", "nobody", ends_with=ExitCode.NOT_FOUND)
    assert "sources.orders" in said


def test_discover_lists_what_a_source_could_read(run: Run, good: Path) -> None:
    found = json.loads(run("discover", good, "orders", "-o", "json"))
    assert "orders" in [each["name"] for each in found]
    assert "order_id bigint" in found[0]["columns"]
    assert "only sources" in run("discover", good, "show", ends_with=ExitCode.USAGE)


def test_sources_and_sinks_of_a_file_are_listed(run: Run, good: Path) -> None:
    assert [each["topic"] for each in json.loads(run("sources", good, "-o", "json"))] == ["orders"]
    assert json.loads(run("sinks", good, "-o", "json"))[0]["topics"] == ["orders", "x.*"]


def test_connectors_are_listed_with_what_they_promise(run: Run) -> None:
    found = {each["name"]: each for each in json.loads(run("connectors", "-o", "json"))}
    assert found["datagen"]["delivery"] == "exactly once"
    assert found["stdout"]["kind"] == "sink"


def test_schemas_of_connectors_transforms_and_the_file(run: Run) -> None:
    datagen = json.loads(run("schema", "datagen"))
    assert "rows_per_second" in datagen["$defs"]["DatagenConfig"]["properties"]
    assert "specs" in run("schema", "cast")
    assert "sources" in json.loads(run("schema", "file"))["$defs"]["FileModel"]["properties"]
    assert "did you mean datagen?" in run("schema", "datagn", ends_with=ExitCode.NOT_FOUND)


def test_status_of_pipelines_that_never_ran(run: Run, good: Path) -> None:
    assert "have never run" in run("status", good, ends_with=ExitCode.NOT_FOUND)


def test_status_tells_whether_the_process_is_there(run: Run, good: Path, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    pipeline = PipelineStatus(
        id="sources.orders", connector="datagen", state=PipelineState.RUNNING, records=42
    )
    status = Status(pid=1, file="f", started_at=0, updated_at=0, pipelines=(pipeline,))
    with StateFolder(folder):
        write_status(folder, status)
        found = json.loads(run("status", good, "-o", "json"))
        assert found["running"]
        assert found["pipelines"][0]["records"] == 42
    assert "stopped" in run("status", good, ends_with=ExitCode.UNAVAILABLE)


def test_a_state_folder_is_used_by_one_process_at_a_time(
    run: Run, good: Path, tmp_path: Path
) -> None:
    with StateFolder(tmp_path / "state"):
        said = run("run", good, ends_with=ExitCode.CONFLICT)
    assert "another process" in said


def test_a_file_without_tests_cannot_be_tested(run: Run, good: Path) -> None:
    assert "no tests" in run("test", good, ends_with=ExitCode.USAGE)
