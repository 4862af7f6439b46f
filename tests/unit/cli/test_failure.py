"""Errors become one message and one documented exit code."""

import json
import re
from pathlib import Path

import pytest

from mainstem.cli.errors import ExitCode, UsageFailure, exit_code, report
from mainstem.cli.main import main
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError, Unavailable

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unavailable(ErrorCode.UNKNOWN_TOPIC), ExitCode.NOT_FOUND),
        (InvalidRequest(ErrorCode.TOPIC_EXISTS), ExitCode.CONFLICT),
        (Unavailable(ErrorCode.TIMED_OUT), ExitCode.UNAVAILABLE),
        (Corrupt("bad"), ExitCode.CORRUPT),
        (InvalidRequest(ErrorCode.INVALID_CONFIG), ExitCode.BAD_CONFIGURATION),
        (InvalidRequest(ErrorCode.INVALID_RECORD), ExitCode.FAILED),
        (UsageFailure("no"), ExitCode.USAGE),
    ],
)
def test_codes_tell_apart_what_scripts_branch_on(error: MainstemError, code: ExitCode) -> None:
    assert exit_code(error) is code


def test_a_report_names_code_object_cause_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    error = InvalidRequest(ErrorCode.TOPIC_EXISTS, "it is there", subject="orders", remedy="rename")
    report(error, as_json=False)
    assert capsys.readouterr().err == ("error: TOPIC_EXISTS [orders]: it is there\nhelp:  rename\n")
    report(error, as_json=True)
    told = json.loads(capsys.readouterr().err)["error"]
    assert (told["code"], told["subject"], told["exit_code"]) == ("TOPIC_EXISTS", "orders", 4)


def test_every_exit_code_is_documented() -> None:
    documented = re.findall(r"^\| (\d+) \|", DOCUMENT.read_text(), flags=re.MULTILINE)
    assert [int(number) for number in documented] == sorted(ExitCode)


@pytest.mark.parametrize(
    "form", [["-o", "json"], ["--output", "json"], ["--output=json"], ["-ojson"]]
)
def test_errors_are_json_when_the_answer_would_be(
    form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["config", "show", "--set", "kafka.prt=1", *form])
    assert ended.value.code == ExitCode.BAD_CONFIGURATION
    assert "kafka.port" in json.loads(capsys.readouterr().err)["error"]["remedy"]
