"""Listeners that other machines can reach: what they refuse to be, and whom they let in."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.security.kit import ADMIN_PASSWORD, Certificates, Client, SecureNode
from tests.integration.security.lasting import flags

from mainstem.model.errors import InvalidRequest
from mainstem.node.config.loader import load
from mainstem.wire.kafka.messages.api_versions import ApiVersionsRequest
from mainstem.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest

PER_MINUTE = 20


def started(data_dir: Path, settings: dict[str, object], *more: str) -> tuple[int, str]:
    """Starts a node that is expected to refuse; its status and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "mainstem.node", "--data-dir", str(data_dir), *flags(settings),
         "--set", "http.port=0", *more],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def tls(certificates: Certificates) -> dict[str, object]:
    return {
        "tls.certificate_file": certificates.certificate,
        "tls.key_file": certificates.key,
        "tls.client_ca_file": certificates.ca,
    }


OPEN: dict[str, dict[str, object]] = {
    "kafka without a login": {"kafka.host": "0.0.0.0"},
    "kafka on one address of the machine": {"kafka.host": "192.0.2.1"},
    "kafka on all IPv6 addresses": {"kafka.listeners": "PLAINTEXT://[::]:0"},
    "one open listener beside a closed one": {
        "kafka.listeners": "SASL_SSL://0.0.0.0:0,PLAINTEXT://0.0.0.0:0"
    },
    "TLS that knows nobody": {
        "kafka.listeners": "SSL://0.0.0.0:0",
        "tls.client_certificates": "requested",
    },
    "http without a login": {"http.host": "0.0.0.0"},
    "http with TLS and without a login": {"http.host": "0.0.0.0", "http.tls": "true"},
    "http passwords in the clear": {"http.host": "0.0.0.0", "http.login": "true"},
}


@pytest.mark.parametrize("what", OPEN)
def test_an_open_listener_without_a_login_is_no_configuration(
    certificates: Certificates, what: str
) -> None:
    settings = tls(certificates) | OPEN[what]
    assigned = {name: str(value) for name, value in settings.items()}
    with pytest.raises(InvalidRequest) as refusal:
        load(file=None, environment={}, flags=assigned)
    assert "--insecure" in str(refusal.value)
    load(file=None, environment={}, flags=assigned | {"node.insecure": "true"})


@pytest.mark.parametrize("what", ["kafka without a login", "http without a login"])
def test_an_open_listener_without_a_login_refuses_to_start(tmp_path: Path, what: str) -> None:
    status, said = started(tmp_path / "data", OPEN[what])
    assert status == 2, said
    assert "--insecure" in said
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("place", ["file:///etc/passwd", "https://user:hunter2@keys.example/keys"])
def test_ssrf_keys_of_an_issuer_are_not_fetched_from_just_anywhere(
    tmp_path: Path, place: str
) -> None:
    settings: dict[str, object] = {
        "security.oauth_issuer": "https://issuer.test",
        "security.oauth_audiences": "mainstem",
        "security.oauth_keys": place,
        "kafka.listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    }
    status, said = started(tmp_path / "data", settings)
    assert status not in (0, None), said
    assert "Traceback" not in said
    assert "hunter2" not in said


def test_settings_are_shown_without_what_they_hide(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text(ADMIN_PASSWORD)
    settings = flags({"security.admin_password_file": secret})
    done = subprocess.run(
        [Path(sys.executable).with_name("mainstem"), "config", "show", "--origin", "-o", "json",
         *settings],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=os.environ | {"COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = {row["setting"]: row["value"] for row in json.loads(done.stdout)}
    assert shown["security.admin_password_file"] == str(secret)
    assert ADMIN_PASSWORD not in done.stdout


# A node that others can reach


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    kinds = "SASL_SSL://0.0.0.0:0,SASL_PLAINTEXT://0.0.0.0:0,PLAINTEXT://127.0.0.1:0"
    settings = {
        "kafka.listeners": kinds,
        "http.host": "0.0.0.0",
        "http.tls": "true",
        "http.login": "true",
        "security.connections_per_minute_max": PER_MINUTE,
    }
    with SecureNode(tmp_path_factory.mktemp("open"), *flags(settings)) as made:
        yield made


def dial(node: SecureNode, kind: str, source: str) -> socket.socket:
    """A connection from one of the addresses of this machine."""
    address = node.http if kind == "HTTPS" else node.address(kind)
    port = int(address.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), 10, (source, 0))


class Caller(Client):
    """A client with an address of its own."""

    def __init__(self, node: SecureNode, source: str) -> None:
        super().__init__(node.address("PLAINTEXT"))
        self.socket.close()
        self.socket = dial(node, "SASL_PLAINTEXT", source)


def test_secrets_do_not_travel_in_the_clear(node: SecureNode) -> None:
    with Caller(node, "127.0.0.2") as client:
        for mechanism in ("PLAIN", "OAUTHBEARER"):
            answer = client.ask(SaslHandshakeRequest(mechanism), 1)
            assert answer.error_code == 33
        assert set(answer.mechanisms) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}


def test_an_address_that_connects_too_often_is_refused(node: SecureNode) -> None:
    let_in = 0
    for _ in range(PER_MINUTE + 15):
        with Caller(node, "127.0.0.3") as client, contextlib.suppress(ConnectionError):
            client.ask(ApiVersionsRequest(), 3)
            let_in += 1
    assert PER_MINUTE <= let_in <= PER_MINUTE + 5
    with Caller(node, "127.0.0.4") as other:
        assert other.ask(ApiVersionsRequest(), 3).error_code == 0
    for _ in range(PER_MINUTE + 15):
        with node.client() as own:  # loopback belongs to the operator
            assert own.ask(ApiVersionsRequest(), 3).error_code == 0


def is_closed(caller: socket.socket) -> bool:
    caller.setblocking(False)
    try:
        return caller.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize(("kind", "source"), [("SASL_SSL", "127.0.0.5"), ("HTTPS", "127.0.0.6")])
def test_an_address_that_connects_too_often_is_refused_before_tls(
    node: SecureNode, kind: str, source: str
) -> None:
    """Handshakes cost the node more than the caller, who need not even begin one."""
    with contextlib.ExitStack() as stack:
        callers = [stack.enter_context(dial(node, kind, source)) for _ in range(PER_MINUTE + 15)]
        deadline = time.monotonic() + 5
        while sum(is_closed(each) for each in callers) < 10 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert 10 <= sum(is_closed(each) for each in callers) <= 15
