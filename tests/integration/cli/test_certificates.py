"""Certificates made by the command: a node serves them, clients of all kinds trust them."""

import json
import ssl
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from mainstem.cli.errors import ExitCode
from mainstem.cli.main import main
from mainstem.testing.local_node import LocalNode


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command in this process."""

    def run_command(*words: str, ends_with: ExitCode = ExitCode.OK) -> str:
        with pytest.raises(SystemExit) as ended:
            main(words)
        captured = capsys.readouterr()
        assert (ended.value.code or 0) == ends_with, captured.err
        return captured.out if ends_with == ExitCode.OK else captured.err

    return run_command


def node_with(folder: Path) -> LocalNode:
    settings = {
        "kafka.listeners": "SSL://127.0.0.1:0",
        "tls.certificate_file": folder / "node.pem",
        "tls.key_file": folder / "node.key",
        "tls.client_ca_file": folder / "ca.pem",
        "tls.client_certificates": "required",
        "tls.name_rules": '["RULE:^CN=(.*)$/$1/"]',
        "tls.reload_interval_ms": 100,
        "security.super_users": "User:alice",
    }
    flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return LocalNode(arguments=flags)


def test_a_node_and_clients_meet_with_certificates_made_here(
    run: Callable[..., str], tmp_path: Path
) -> None:
    folder = tmp_path / "certs"
    told = run("cert", "make", "--folder", str(folder), "--host", "127.0.0.1")
    assert f'certificate_file = "{folder}/node.pem"' in told
    told = run("cert", "make", "alice", "--client", "--folder", str(folder))
    assert f"--cert-file {folder}/alice.pem" in told
    run("cert", "make", "bob", "--client", "--folder", str(folder))
    assert {stat.S_IMODE(key.stat().st_mode) for key in folder.glob("*.key")} == {0o600}
    with node_with(folder) as node:

        def words(name: str) -> list[str]:
            return ["--bootstrap", node.kafka, "--ca-file", f"{folder}/ca.pem",
                    "--cert-file", f"{folder}/{name}.pem",
                    "--key-file", f"{folder}/{name}.key"]  # fmt: skip

        run("topic", "create", "made", *words("alice"))
        refused = run("topic", "create", "more", *words("bob"), ends_with=ExitCode.NOT_ALLOWED)
        assert "User:bob may not CREATE" in refused
        admin = AdminClient(
            {
                "bootstrap.servers": node.kafka,
                "security.protocol": "SSL",
                "ssl.ca.location": f"{folder}/ca.pem",
                "ssl.certificate.location": f"{folder}/alice.pem",
                "ssl.key.location": f"{folder}/alice.key",
            }
        )
        assert "made" in admin.list_topics(timeout=10).topics


def test_a_new_certificate_is_taken_up_by_a_running_node(
    run: Callable[..., str], tmp_path: Path
) -> None:
    folder = str(tmp_path)
    run("cert", "make", "--folder", folder, "--host", "127.0.0.1")
    run("cert", "make", "alice", "--client", "--folder", folder)
    with node_with(tmp_path) as node:
        shown = ["cert", "show", "--connect", node.kafka, "-o", "json"]
        [before] = json.loads(run(*shown))
        run("cert", "make", "--folder", folder, "--host", "127.0.0.1", "--days", "30", "--replace")
        deadline = time.monotonic() + 20
        after = before
        while after["sha256"] == before["sha256"] and time.monotonic() < deadline:
            time.sleep(0.1)
            [after] = json.loads(run(*shown))
        assert after["days_left"] in (29, 30)
        assert after["issuer"] == before["issuer"]
        run("topic", "list", "--bootstrap", node.kafka, "--ca-file", f"{folder}/ca.pem",
            "--cert-file", f"{folder}/alice.pem", "--key-file", f"{folder}/alice.key")  # fmt: skip


def test_a_certificate_says_who_it_is_for(run: Callable[..., str], tmp_path: Path) -> None:
    run("cert", "make", "--folder", str(tmp_path), "--host", "kafka.example.com", "--host", "::1")
    files = [str(tmp_path / "node.pem"), str(tmp_path / "ca.pem")]
    node, authority = json.loads(run("cert", "show", *files, "-o", "json"))
    assert (node["subject"], node["principal"]) == ("CN=node", "User:CN=node")
    assert node["hosts"] == ["kafka.example.com", "::1"]
    assert sorted(node["purposes"]) == ["client", "server"]
    assert not node["authority"]
    assert authority["authority"]
    assert node["issuer"] == authority["subject"]
    assert "kafka.example.com" in run("cert", "show", files[0])


def test_a_certificate_is_not_written_over_by_accident(
    run: Callable[..., str], tmp_path: Path
) -> None:
    words = ["cert", "make", "carol", "--client", "--folder", str(tmp_path)]
    run(*words)
    before = (tmp_path / "carol.pem").read_bytes()
    assert "DUPLICATE_RESOURCE" in run(*words, ends_with=ExitCode.CONFLICT)
    assert (tmp_path / "carol.pem").read_bytes() == before
    run(*words, "--replace")
    assert (tmp_path / "carol.pem").read_bytes() != before
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(tmp_path / "carol.pem", tmp_path / "carol.key")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["make", "ca"], ExitCode.USAGE),
        (["make", "../node"], ExitCode.USAGE),
        (["make", "alice", "--client", "--host", "x"], ExitCode.USAGE),
        (["make", "--host", "not..a..name"], ExitCode.USAGE),
        (["show"], ExitCode.USAGE),
        (["show", "/nowhere.pem"], ExitCode.USAGE),
        (["show", __file__], ExitCode.USAGE),
        (["show", "--connect", "127.0.0.1:1"], ExitCode.UNAVAILABLE),
    ],
    ids=str,
)
def test_what_cannot_be_a_certificate_is_said(
    run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    words: list[str], code: ExitCode,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert "error: " in run("cert", *words, ends_with=code)


def test_an_authority_without_its_key_signs_nothing(
    run: Callable[..., str], tmp_path: Path
) -> None:
    run("cert", "make", "--folder", str(tmp_path))
    (tmp_path / "ca.key").unlink()
    error = run("cert", "make", "other", "--folder", str(tmp_path),
                ends_with=ExitCode.BAD_CONFIGURATION)  # fmt: skip
    assert "the authority cannot be used" in error
