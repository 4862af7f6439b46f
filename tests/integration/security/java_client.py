"""Kafka's own client in one process, with as many logins as a test wants."""

import subprocess
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from tests.clients.client import java_command
from tests.integration.security.kit import SecureNode

LOGIN = "org.apache.kafka.common.security"
PLAIN = f"{LOGIN}.plain.PlainLoginModule"
SCRAM = f"{LOGIN}.scram.ScramLoginModule"
BEARER = f"{LOGIN}.oauthbearer.OAuthBearerLoginModule"
CALLBACK = f"{LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler"
PATIENCE_S = 60


class Refusal(Exception):
    """The client's own exception: its class and its message."""


class Java:
    """One JVM; every verb is that of ``Security.java``."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("w")
        # The command is made of our own driver.
        self._process = subprocess.Popen(
            java_command("Security"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def do(self, verb: str, client: str, *words: object) -> str:
        """What the client answers; ``Refusal`` when it raises."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = "\t".join([verb, client, *(str(word) for word in words)])
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        if answer.partition(" ")[0] != "ok":
            raise Refusal(answer)
        return answer.removeprefix("ok").strip()

    def client(self, name: str, settings: dict[str, object]) -> str:
        """Let a client have these settings; its name."""
        self.do("client", name, *(f"{key}={value}" for key, value in settings.items()))
        return name


def settings(node: SecureNode, kind: str) -> dict[str, object]:
    """How to reach a listener."""
    found: dict[str, object] = {
        "bootstrap.servers": node.address(kind),
        "security.protocol": kind,
        "reconnect.backoff.max.ms": 200,
        "enable.metrics.push": "false",
    }
    if kind.endswith("SSL"):
        found |= trust(node.certificates.ca)
    return found


def trust(ca: Path) -> dict[str, object]:
    """Which authority is trusted."""
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca}


def password(mechanism: str, user: str, secret: str, **options: str) -> dict[str, object]:
    """A login with name and password."""
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    said = {"username": user, "password": secret, **options}
    words = " ".join(f'{key}="{value}"' for key, value in said.items())
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {words};"}


def bearer(endpoint: str, user: str) -> dict[str, object]:
    """A login with a token that the client gets for itself."""
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{BEARER} required clientId="{user}" clientSecret="secret";',
        "sasl.login.callback.handler.class": CALLBACK,
        "sasl.oauthbearer.token.endpoint.url": endpoint,
    }


def certificate(files: tuple[Path, Path]) -> dict[str, object]:
    """A login by certificate: Java wants both in one file, and the key in PKCS#8."""
    chain, key = files
    loaded = load_pem_private_key(key.read_bytes(), None)
    plain = loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    both = chain.with_suffix(".both.pem")
    both.write_bytes(plain + chain.read_bytes())
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": both}
