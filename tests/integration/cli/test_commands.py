"""The command line against a real node, told as its users would tell it."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer

from mainstem.cli.errors import ExitCode
from mainstem.cli.main import main
from mainstem.testing.local_node import LocalNode

COMMAND = str(Path(sys.executable).with_name("mainstem"))


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


def pipe(node: LocalNode, text: bytes, *words: str) -> bytes:
    """Runs a command as its own process with something on standard input."""
    done = subprocess.run(
        [COMMAND, *words, "--bootstrap", node.kafka],
        input=text,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_a_topic_lives_from_create_to_delete(run: Callable[..., str]) -> None:
    assert run("topic", "create", "life", "-p", "3", "-c", "retention.ms=3600000") == (
        "created life\n"
    )
    assert "life  3" in run("topic", "list", "li*")
    run("topic", "alter", "life", "-p", "4", "-c", "retention.ms=7200000")
    [told] = json.loads(run("topic", "describe", "life", "-o", "json"))
    assert len(told["partitions"]) == 4
    assert told["settings"] == {"retention.ms": "7200000"}
    run("topic", "alter", "life", "--remove", "retention.ms")
    [told] = json.loads(run("topic", "describe", "life", "-o", "json"))
    assert told["settings"] == {}
    assert run("topic", "delete", "life", "--yes") == "deleted life\n"
    assert "life" not in run("topic", "list")


def test_creating_twice_is_a_conflict_unless_it_may_be_there(run: Callable[..., str]) -> None:
    run("topic", "create", "twice")
    assert "TOPIC_EXISTS [twice]" in run("topic", "create", "twice", ends_with=ExitCode.CONFLICT)
    assert run("topic", "create", "twice", "--if-not-exists") == "nothing to create\n"


def test_a_dry_run_creates_nothing(run: Callable[..., str]) -> None:
    assert run("topic", "create", "dry", "--dry-run") == "would create dry\n"
    assert "dry" not in run("topic", "list")


@pytest.mark.parametrize("command", [["describe"], ["delete", "--yes"]])
def test_a_missing_topic_is_not_found(run: Callable[..., str], command: list[str]) -> None:
    assert "UNKNOWN_TOPIC [nowhere]" in run(
        "topic", *command, "nowhere", ends_with=ExitCode.NOT_FOUND
    )


def test_a_setting_that_does_not_exist_is_refused(run: Callable[..., str]) -> None:
    error = run(
        "topic", "create", "t", "-c", "retention.mss=1", ends_with=ExitCode.BAD_CONFIGURATION
    )
    assert "retention.ms" in error


def test_lines_become_records_with_keys_and_headers(
    node: LocalNode, run: Callable[..., str]
) -> None:
    pipe(node, b"a:1\nb:2\n", "produce", "lines", "-K", ":", "-H", "from=test")
    out = run("consume", "lines", "--format", r"%k=%s %h @%o\n")
    assert out == "a=1 from=test @0\nb=2 from=test @1\n"


def test_a_file_is_read_as_lines_or_as_a_whole(run: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_text("one\ntwo\n")
    assert run("produce", "file", "--file", str(file)) == "2 records written to file\n"
    assert run("produce", "file", "-f", str(file), "--whole") == "1 record written to file\n"
    assert run("consume", "file") == "one\ntwo\none\ntwo\n\n"


def test_a_line_may_stand_for_a_deletion(run: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_text("k|gone\n")
    run("produce", "deleted", "-f", str(file), "-K", "|", "--null", "gone")
    [record] = [json.loads(line) for line in run("consume", "deleted", "-o", "json").splitlines()]
    assert (record["key"], record["value"]) == ("k", None)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_back(run: Callable[..., str], codec: str) -> None:
    run("produce", f"codec-{codec}", "squeezed", "-z", codec)
    assert run("consume", f"codec-{codec}") == "squeezed\n"


def test_reading_begins_where_it_was_told(run: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_text("".join(f"{i}\n" for i in range(10)))
    run("topic", "create", "begin")
    run("produce", "begin", "-f", str(file))
    assert run("consume", "begin", "--offset", "7") == "7\n8\n9\n"
    assert run("consume", "begin", "--offset", "-2") == "8\n9\n"
    assert run("consume", "begin", "--max", "3") == "0\n1\n2\n"
    assert run("consume", "begin", "--timestamp", "-1h").count("\n") == 10
    assert run("consume", "begin", "--timestamp", "2999-01-01") == ""
    documents = list(yaml.safe_load_all(run("consume", "begin", "-n", "2", "-o", "yaml")))
    assert [document["value"] for document in documents] == ["0", "1"]


def test_following_prints_what_comes_later(node: LocalNode, run: Callable[..., str]) -> None:
    run("topic", "create", "later")
    reader = subprocess.Popen(
        [
            COMMAND,
            "consume",
            "later",
            "--follow",
            "--from-beginning",
            "--max",
            "2",
            "-b",
            node.kafka,
        ],
        stdout=subprocess.PIPE,
    )
    try:
        run("produce", "later", "first")
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"first\n"
        run("produce", "later", "second")
        assert reader.stdout.readline() == b"second\n"
        assert reader.wait(20) == 0
    finally:
        reader.kill()
        reader.communicate()


def test_a_reader_that_has_seen_enough_is_no_error(
    node: LocalNode, run: Callable[..., str]
) -> None:
    run("topic", "create", "enough")
    pipe(node, b"0123456789abcdef" * 4000 + b"\n" + b"x\n" * 50_000, "produce", "enough")
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {COMMAND} consume enough -b {node.kafka} | head -c 1"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_aborted_transactions_are_left_out_on_request(
    node: LocalNode, run: Callable[..., str]
) -> None:
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": "writer"})
    producer.init_transactions(20)
    for outcome in ("kept", "dropped", "kept too"):
        producer.begin_transaction()
        producer.produce("outcomes", outcome)
        producer.flush(20)
        if outcome == "dropped":
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    assert run("consume", "outcomes", "--read-committed") == "kept\nkept too\n"
    assert run("consume", "outcomes") == "kept\ndropped\nkept too\n"


def test_a_group_reads_on_where_it_stopped(run: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_text("".join(f"{i}\n" for i in range(6)))
    run("topic", "create", "grouped")
    run("produce", "grouped", "-f", str(file))
    assert run("consume", "grouped", "-g", "readers", "--from-beginning", "-n", "4") == (
        "0\n1\n2\n3\n"
    )
    [lag] = json.loads(run("group", "lag", "readers", "-o", "json"))
    assert (lag["committed"], lag["end"], lag["lag"]) == (4, 6, 2)
    assert run("consume", "grouped", "-g", "readers") == "4\n5\n"
    assert re.search(r"^readers +Empty", run("group", "list"), flags=re.MULTILINE)
    told = json.loads(run("group", "describe", "readers", "-o", "json"))
    assert (told["state"], told["members"]) == ("Empty", [])


def test_a_group_is_moved_and_deleted(run: Callable[..., str]) -> None:
    run("topic", "create", "moved")
    for value in ("a", "b", "c"):
        run("produce", "moved", value)
    run("consume", "moved", "-g", "movers", "--from-beginning")
    rows = json.loads(
        run("group", "reset-offsets", "movers", "--shift-by", "-1", "--dry-run", "-o", "json")
    )
    assert rows == [{"topic": "moved", "partition": 0, "old": 3, "new": 2}]
    assert run("consume", "moved", "-g", "movers") == ""
    run("group", "reset-offsets", "movers", "--to-earliest")
    assert run("consume", "moved", "-g", "movers") == "a\nb\nc\n"
    run("group", "reset-offsets", "fresh", "--topic", "moved:0", "--to-offset", "1")
    assert run("consume", "moved", "-g", "fresh") == "b\nc\n"
    run("group", "delete", "movers", "fresh")
    run("group", "describe", "movers", ends_with=ExitCode.NOT_FOUND)


@pytest.mark.parametrize(
    "words",
    [
        ["consume", "t", "--offset", "1", "--timestamp", "2"],
        ["consume", "t", "--group", "g", "--offset", "1"],
        ["consume", "t", "--format", "%q"],
        ["produce", "t", "v", "--key", "k", "--key-separator", ":"],
        ["produce", "t", "--file", "/does/not/exist"],
        ["topic", "alter", "t"],
        ["topic", "create", "t", "-c", "no-equals-sign"],
        ["group", "reset-offsets", "g"],
        ["group", "reset-offsets", "g", "--to-earliest", "--to-latest"],
        ["no-such-command"],
    ],
)
def test_a_command_that_makes_no_sense_is_a_usage_error(
    run: Callable[..., str], words: list[str]
) -> None:
    assert "rror" in run(*words, ends_with=ExitCode.USAGE)


def test_nobody_there_is_unavailable(run: Callable[..., str]) -> None:
    error = run(
        "topic", "list", "-b", "127.0.0.1:1", "--timeout", "0.2", ends_with=ExitCode.UNAVAILABLE
    )
    assert "127.0.0.1:1" in error


def test_the_apis_of_a_broker_are_listed(run: Callable[..., str]) -> None:
    rows = {row["name"]: row for row in json.loads(run("kafka-apis", "-o", "json"))}
    assert len(rows) == 71
    assert rows["Produce"]["served"]
    assert not rows["AddRaftVoter"]["served"]
    assert "71 client-facing" in run("kafka-apis", "--missing")


def test_the_benchmarks_measure_what_they_say(run: Callable[..., str]) -> None:
    produced = json.loads(run("bench", "produce", "-n", "2000", "-s", "50", "-o", "json"))
    assert (produced["records"], produced["durability"]) == (2000, "fsync")
    assert 0 < produced["latency_ms_p50"] <= produced["latency_ms_max"]
    consumed = json.loads(run("bench", "consume", "-n", "2000", "-o", "json"))
    assert (consumed["records"], consumed["value_bytes"]) == (2000, 50)
    latency = json.loads(run("bench", "latency", "-n", "100", "-r", "500", "-o", "json"))
    assert latency["records"] == 100
    assert 0.19 < latency["seconds"] < 5


def test_settings_tell_their_origin(
    run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("kafka:\n  port: 9999\n")
    monkeypatch.setenv("MAINSTEM_HTTP__PORT", "7777")
    words = ["config", "show", "--origin", "--changed", "--config", str(file), "-o", "json"]
    rows = {row["setting"]: row for row in json.loads(run(*words, "--set", "node.id=5"))}
    assert rows["kafka.port"] == {"setting": "kafka.port", "value": 9999, "origin": f"file {file}"}
    assert rows["http.port"]["origin"] == "environment MAINSTEM_HTTP__PORT"
    assert rows["node.id"]["origin"] == "flag"
    assert len(json.loads(run("config", "show", "-o", "json"))) > 50


def test_a_terminal_sees_the_progress_of_a_file(node: LocalNode, tmp_path: Path) -> None:
    file = tmp_path / "input.txt"
    file.write_text("line\n" * 50_000)
    terminal, side = pty.openpty()
    with subprocess.Popen(
        [COMMAND, "produce", "progress", "-f", str(file), "-b", node.kafka],
        stdout=subprocess.PIPE,
        stderr=side,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    ) as process:
        os.close(side)
        drawn = b""
        with contextlib.suppress(OSError):  # the terminal is gone with its last user
            while piece := os.read(terminal, 4096):
                drawn += piece
        assert process.stdout is not None
        assert process.stdout.read() == b"50000 records written to progress\n"
    os.close(terminal)
    assert process.returncode == 0
    assert b"input.txt" in drawn


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("top", "topic"),
        ("topic del", "delete"),
        ("user pas", "password"),
        ("group res", "reset-offsets"),
        ("topic list --pass", "--password-file"),
        ("topic list --mechanism PL", "PLAIN"),
        ("acl create --operation wr", "write"),
        ("acl create --pattern gl", "glob"),
    ],
)
def test_the_shell_completes_commands(words: str, offered: str) -> None:
    done = subprocess.run(
        [COMMAND],
        env=os.environ
        | {
            "_MAINSTEM_COMPLETE": "complete_bash",
            "COMP_WORDS": f"mainstem {words}",
            "COMP_CWORD": str(len(words.split())),
        },
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    )
    assert done.stdout.split() == [offered]


def test_help_and_version_are_quick_and_need_no_broker() -> None:
    for words in (["--help"], ["--version"], ["topic", "--help"], ["consume", "--help"]):
        done = subprocess.run([COMMAND, *words], capture_output=True, timeout=10, check=False)
        assert done.returncode == 0
        assert done.stdout


def test_an_open_transaction_is_listed_described_and_left_alone(
    node: LocalNode, run: Callable[..., str]
) -> None:
    run("topic", "create", "ledger")
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": "booking"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("ledger", b"open", partition=0)
    producer.flush(30)

    [listed] = json.loads(run("transaction", "list", "--state", "Ongoing", "-o", "json"))
    described = json.loads(run("transaction", "describe", "booking", "-o", "json"))
    [writer] = json.loads(run("transaction", "producers", "ledger", "-o", "json"))
    refusal = run(
        "transaction", "abort", "ledger", "--start-offset", "0", ends_with=ExitCode.CONFLICT
    )
    producer.commit_transaction(30)

    assert listed == {"id": "booking", "state": "Ongoing", "producer": writer["producer"]}
    assert described["partitions"] == ["ledger-0"]
    assert writer["open_since_offset"] == 0
    assert "INVALID_TXN_STATE" in refusal
    run("transaction", "describe", "nobody", ends_with=ExitCode.NOT_FOUND)
