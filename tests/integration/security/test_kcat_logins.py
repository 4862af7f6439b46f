"""kcat logs in: its older librdkafka looks for the first version of a handshake."""

import subprocess
from collections.abc import Iterator

import pytest
from tests.integration.security.kit import USER_PASSWORD, SecureNode, rule

from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest

USER, TOPIC = "kcat", "of-kcat"
UNSUPPORTED_VERSION = 35


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    """A node that knows the user."""
    with SecureNode(tmp_path_factory.mktemp("kcat")) as made:
        made.make_user(USER, rule(USER, Operation.ALL, (ResourceType.TOPIC, TOPIC)))
        yield made


def kcat(node: SecureNode, *words: str, password: str = USER_PASSWORD, content: str = "") -> str:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": USER,
        "sasl.password": password,
    }
    flags = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    command = ["kcat", "-b", node.address("SASL_PLAINTEXT"), *flags, *words]
    done = subprocess.run(
        command, input=content, capture_output=True, text=True, timeout=30, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.needs("kcat")
def test_kcat_logs_in_writes_and_reads(node: SecureNode) -> None:
    kcat(node, "-P", "-t", TOPIC, content="one\ntwo\n")
    assert "one\ntwo\n" in kcat(node, "-C", "-e", "-t", TOPIC)


@pytest.mark.needs("kcat")
def test_kcat_with_a_wrong_password_is_told_so(node: SecureNode) -> None:
    assert "the login failed" in kcat(node, "-L", "-m", "2", password="wrong")


def test_the_first_version_of_a_handshake_is_refused_with_what_there_is(node: SecureNode) -> None:
    with node.login(USER) as logged_in:
        answer = logged_in.ask(SaslHandshakeRequest("PLAIN"), 0)
    assert answer.error_code == UNSUPPORTED_VERSION
    assert "PLAIN" in answer.mechanisms
