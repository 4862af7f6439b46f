"""The audit: whole lines, no secrets, bounded files."""

import json
import stat
from pathlib import Path

from tests.kit.clock import ManualClock
from tests.unit.security.kit import user

from mainstem.security.audit import Audit
from mainstem.security.audit_storage import AuditFile
from mainstem.security.authorisation.acl import Operation, ResourceType


def test_every_event_is_one_line_of_json() -> None:
    lines: list[str] = []
    audit = Audit(ManualClock(0), lines.append)
    audit.logged_in(user("alice", method="PLAIN"), "h")
    audit.login_refused('mal"lory\n{"event":"login","outcome":"granted"}', "PLAIN", "h", "wrong")
    audit.refused(user("bob"), "h", Operation.WRITE, ResourceType.TOPIC, "orders")
    audit.changed(user("root"), "h", "user deleted", "bob")
    assert all("\n" not in line for line in lines)
    events = [json.loads(line) for line in lines]
    assert [(each["event"], each["outcome"]) for each in events] == [
        ("login", "granted"),
        ("login", "refused"),
        ("access", "refused"),
        ("change", "done"),
    ]
    assert events[0]["time"] == "1970-01-01T00:00:00.000Z"
    assert events[2]["operation"] == "WRITE"


def test_texts_of_clients_are_cut() -> None:
    lines: list[str] = []
    Audit(ManualClock(), lines.append).login_refused("x" * 100_000, "PLAIN", "h", "wrong")
    assert len(lines[0]) < 1_000


def test_the_file_belongs_to_its_owner_and_is_made_when_needed(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "audit.jsonl"
    file = AuditFile(path)
    assert not path.exists()
    file.write("one")
    file.write("two")
    file.close()
    assert path.read_text() == "one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = AuditFile(path)
    again.write("three")
    again.close()
    assert path.read_text().splitlines() == ["one", "two", "three"]


def test_large_files_are_put_aside_and_few_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = AuditFile(path, file_bytes_max=10, files_kept=3)
    for number in range(20):
        file.write(f"line-{number}")
    file.close()
    assert path.read_text() == "line-19\n"
    assert (tmp_path / "audit.jsonl.1").read_text() == "line-18\n"
    assert len(list(tmp_path.iterdir())) == 4


def test_a_disk_that_takes_nothing_does_not_stop_the_node(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    AuditFile(blocked / "audit.jsonl").write("lost")
