"""Every way in which a command can be told who asks, against a node that asks."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.cli.secured import ADMIN, Shell, somebody
from tests.integration.security.kit import ADMIN_PASSWORD

from mainstem.cli.errors import ExitCode

NOBODY = {"MAINSTEM_USER": "", "MAINSTEM_PASSWORD": "", "MAINSTEM_CA_FILE": ""}
COMMAND = str(Path(sys.executable).with_name("mainstem"))


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_flags_log_in(shell: Shell, tmp_path: Path, listener: str, mechanism: str) -> None:
    file = tmp_path / "password"
    file.write_text(f"{ADMIN_PASSWORD}\nnot this line\n")
    words = ["--user", "admin", "--password-file", str(file), "--mechanism", mechanism]
    if listener == "SASL_SSL":
        words += ["--ca-file", str(shell.node.certificates.ca)]
    shell("user", "list", *words, login=NOBODY, listener=listener)


def test_a_password_is_asked_for_on_a_terminal(shell: Shell) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [COMMAND, "user", "list", "--user", "admin"],
        env=os.environ | {"MAINSTEM_BOOTSTRAP": shell.node.address("SASL_PLAINTEXT")},
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = b""
        while b"Password of admin: " not in shown:
            shown += os.read(ours, 1_024)
        os.write(ours, f"{ADMIN_PASSWORD}\n".encode())
        assert process.stdout is not None
        assert b"admin" in process.stdout.read()
    os.close(ours)
    assert process.returncode == 0


def test_the_java_clients_properties_log_in(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "java.properties"
    file.write_text(
        f"""# as the Java client reads it
bootstrap.servers={shell.node.address("SASL_SSL")}
security.protocol = SASL_SSL
sasl.mechanism: SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="admin" \\
    password="{ADMIN_PASSWORD}";
ssl.truststore.type=PEM
ssl.truststore.location={shell.node.certificates.ca}
acks=all
"""
    )
    login = NOBODY | {"MAINSTEM_BOOTSTRAP": "127.0.0.1:1"}
    assert "admin" in shell("user", "list", "--command-config", str(file), login=login)


def test_librdkafkas_properties_log_in(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "librdkafka.properties"
    file.write_text(
        f"""metadata.broker.list={shell.node.address("SASL_SSL")}
security.protocol=SASL_SSL
sasl.mechanisms=PLAIN
sasl.username=admin
sasl.password={ADMIN_PASSWORD}
ssl.ca.location={shell.node.certificates.ca}
"""
    )
    assert "admin" in shell("user", "list", "--command-config", str(file), login=NOBODY)


def test_a_profile_logs_in_and_flags_win_over_it(shell: Shell, tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(
        f"""default = "root"
[profiles.root]
bootstrap = "{shell.node.address("SASL_SSL")}"
http = "http://{shell.node.http}"
user = "admin"
password = "{ADMIN_PASSWORD}"
ca_file = "{shell.node.certificates.ca}"
"""
    )
    profiles.chmod(0o600)
    login = {**NOBODY, "MAINSTEM_PROFILES": str(profiles), "MAINSTEM_BOOTSTRAP": "",
             "MAINSTEM_HTTP": ""}  # fmt: skip
    assert "admin" in shell("user", "list", login=login)
    assert "admin" in shell("role", "list", "--profile", "root", login=login)
    # The password of the profile is its user's, not anybody's.
    error = shell("user", "list", "--user", "other", login=login, ends_with=ExitCode.USAGE)
    assert "[other]: no password is given" in error
    missing = shell("user", "list", "--profile", "none", login=login, ends_with=ExitCode.USAGE)
    assert "the profile does not exist" in missing
    profiles.chmod(0o644)
    open_file = shell("user", "list", login=login, ends_with=ExitCode.BAD_CONFIGURATION)
    assert "readable by other users" in open_file


def test_a_certificate_logs_in(shell: Shell) -> None:
    certificate, key = shell.node.certificates.issue("by-cert")
    words = ["--ca-file", str(shell.node.certificates.ca), "--cert-file", str(certificate),
             "--key-file", str(key)]  # fmt: skip
    shell("role", "grant", "producer", "by-cert")
    shell("produce", "by-cert", "x", *words, login=NOBODY, listener="SSL")
    shell("role", "revoke", "producer", "by-cert")
    error = shell("produce", "by-cert", "x", *words, login=NOBODY, listener="SSL",
                  ends_with=ExitCode.NOT_ALLOWED)  # fmt: skip
    assert "User:by-cert may not" in error or "NOT_AUTHORIZED" in error


def test_a_node_that_nobody_vouches_for_is_not_talked_to(shell: Shell) -> None:
    login = ADMIN | {"MAINSTEM_CA_FILE": "", "MAINSTEM_TLS": "yes"}
    error = shell("topic", "list", login=login, ends_with=ExitCode.NOT_ALLOWED)
    assert "AUTHENTICATION_FAILED [127.0.0.1:" in error
    assert "certificate is not trusted" in error


def test_a_listener_that_asks_hangs_up_on_whoever_does_not_log_in(shell: Shell) -> None:
    error = shell("topic", "list", "--timeout", "2", login=NOBODY, listener="SASL_PLAINTEXT",
                  ends_with=ExitCode.UNAVAILABLE)  # fmt: skip
    assert "closed the connection" in error
    assert "whether it requires TLS or a login" in error


def test_a_mechanism_that_is_not_served_is_refused(shell: Shell) -> None:
    error = shell("topic", "list", "--mechanism", "GSSAPI", ends_with=ExitCode.USAGE)
    assert "'GSSAPI' is not a mechanism" in error


def test_secrets_are_not_sent_in_the_clear_to_other_machines(shell: Shell) -> None:
    words = ["role", "list", "--http", "http://192.0.2.1:8080"]
    error = shell(*words, ends_with=ExitCode.FAILED)
    assert "INVALID_REQUEST [http://192.0.2.1:8080]: the secret would be sent unencrypted" in error
    assert "https" in error


def test_http_that_is_not_a_nodes_is_recognised(shell: Shell) -> None:
    nobody = shell("role", "list", "--http", "http://127.0.0.1:1", ends_with=ExitCode.UNAVAILABLE)
    assert "cannot reach the node's HTTP" in nobody
    assert "--http" in nobody
    wrong = shell("role", "list", "--http", "gopher://x", ends_with=ExitCode.FAILED)
    assert "not the URL" in wrong


def test_every_command_takes_a_login(shell: Shell) -> None:
    login = somebody("admin", ADMIN_PASSWORD)
    shell("topic", "create", "everywhere", login=login)
    shell("produce", "everywhere", "x", login=login)
    assert shell("consume", "everywhere", login=login) == "x\n"
    shell("bench", "produce", "-t", "everywhere", "-n", "10", login=login)
    shell("bench", "consume", "-t", "everywhere", "-n", "5", login=login)
    shell("bench", "latency", "-t", "everywhere", "-n", "5", login=login)
    shell("transaction", "list", login=login)
    shell("group", "list", login=login)
    assert "Metadata" in shell("kafka-apis", login=login)
