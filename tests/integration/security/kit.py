"""A node that asks who is there, and a client that says exactly what a test wants it to say."""

import socket
import struct
from pathlib import Path
from typing import Any, Self, cast

import msgspec
import trustme
from tests.integration.security.requests import scram_upserts

from mainstem.security.authorisation.acl import (
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from mainstem.testing.local_node import LocalNode
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from mainstem.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from mainstem.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest

ADMIN_PASSWORD = "correct horse"
USER_PASSWORD = "battery staple"
REFUSALS = {29, 30, 31, 53, 65}
CLUSTER = (ResourceType.CLUSTER, "kafka-cluster")


class Certificates:
    """An authority, the node's files, and files for clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        self.certificate, self.key = self.issue("node", "localhost", "127.0.0.1")

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """Certificate and key files with that common name."""
        issued = self.authority.issue_cert(*hosts, common_name=name)
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        return certificate, key


class SecureNode(LocalNode):
    """A node with one listener of each kind."""

    KINDS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.certificates = Certificates(folder)
        password = folder / "admin-password"
        password.write_text(ADMIN_PASSWORD + "\n")
        settings = {
            "kafka.listeners": ",".join(f"{kind}://127.0.0.1:0" for kind in self.KINDS),
            "tls.certificate_file": self.certificates.certificate,
            "tls.key_file": self.certificates.key,
            "tls.client_ca_file": self.certificates.ca,
            "tls.client_certificates": "requested",
            "tls.name_rules": '["RULE:^.*CN=([^,]*).*$/$1/", "DEFAULT"]',
            "tls.reload_interval_ms": 200,
            "security.admin_password_file": password,
            "groups.initial_rebalance_delay_ms": 100,
        }
        flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        super().__init__(arguments=(*flags, *arguments))

    def address(self, kind: str) -> str:
        """Where the listener of that kind is."""
        found = self.announced["kafka_listeners"]
        assert isinstance(found, list)
        [address] = [each for each in found if each.startswith(f"{kind}://")]
        return str(address.partition("://")[2])

    def client(self, **rest: Any) -> "Client":
        """A connection to the listener that asks for nothing."""
        return Client(self.address("PLAINTEXT"), **rest)

    def login(self, user: str, password: str = USER_PASSWORD, **rest: Any) -> "Client":
        """A connection that has logged in with name and password."""
        client = Client(self.address("SASL_PLAINTEXT"), **rest)
        try:
            client.log_in(user, password)
        except BaseException:
            client.socket.close()
            raise
        return client

    def make_user(self, name: str, *rules: AclRule) -> None:
        """A user with the usual password and these rules."""
        with self.client() as admin:
            answer = admin.ask(scram_upserts(name, USER_PASSWORD))
            assert [result.error_code for result in answer.results] == [0]
            admin.allow(*rules)


class Client:
    """One connection, request by request."""

    def __init__(self, address: str, *, client_id: str = "test", timeout_s: float = 20.0) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self._client_id = client_id
        self._number = 0

    @classmethod
    def over(cls, connected: socket.socket) -> Self:
        """A client on a connection that is there."""
        client = cls.__new__(cls)
        client.socket, client._client_id, client._number = connected, "test", 0
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: msgspec.Struct, version: int | None = None) -> tuple[int, int]:
        """Send a request; its key and version."""
        key = codec.KEYS[type(request).__name__.removesuffix("Request")]
        version = codec.VERSIONS[key][1] if version is None else version
        self._number += 1
        frame = codec.encode_request_frame(key, version, self._number, self._client_id, request)
        self.socket.sendall(b"".join(cast("list[bytes]", frame)))
        return key, version

    def ask(self, request: msgspec.Struct, version: int | None = None) -> Any:
        """Send a request and read its answer; ConnectionError when the node hangs up."""
        key, version = self.send(request, version)
        frame = self.receive()
        _, body = codec.decode_response_header(key, version, frame, 0, len(frame))
        return codec.decode_response(key, version, frame, body, len(frame))

    def receive(self) -> bytes:
        """One frame without its length."""
        [length] = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def is_closed(self) -> bool:
        """Whether the node has hung up."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def log_in(self, user: str, password: str) -> Any:
        """PLAIN; the last answer, which must be a good one."""
        answer = self.try_login("PLAIN", f"\0{user}\0{password}".encode())
        assert answer.error_code == 0, answer.error_message
        return answer

    def try_login(self, mechanism: str, data: bytes) -> Any:
        """Handshake and one message."""
        handshake = self.ask(SaslHandshakeRequest(mechanism), 1)
        assert handshake.error_code == 0
        return self.ask(SaslAuthenticateRequest(data), 2)

    def allow(self, *rules: AclRule) -> None:
        """Create rules."""
        if not rules:
            return
        creations = [
            AclCreation(
                rule.resource_type,
                rule.name,
                rule.pattern_type,
                rule.principal,
                rule.host,
                rule.operation,
                rule.permission,
            )
            for rule in rules
        ]
        answer = self.ask(CreateAclsRequest(creations))
        assert [result.error_code for result in answer.results] == [0] * len(rules)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the node hung up")
            data += piece
        return data


def rule(
    user: str,
    operation: Operation,
    resource: tuple[ResourceType, str],
    *,
    deny: bool = False,
    pattern: PatternType = PatternType.LITERAL,
) -> AclRule:
    permission = Permission.DENY if deny else Permission.ALLOW
    return AclRule(resource[0], pattern, resource[1], f"User:{user}", "*", operation, permission)


def codes(answer: object) -> set[int]:
    """Every error code anywhere in an answer."""
    found: set[int] = set()
    if isinstance(answer, msgspec.Struct):
        for name in answer.__struct_fields__:
            value = getattr(answer, name)
            if name.endswith("error_code") and isinstance(value, int):
                found.add(value)
            else:
                found |= codes(value)
    elif isinstance(answer, list):
        for each in answer:
            found |= codes(each)
    return found


def texts(answer: object) -> set[str]:
    """Every text anywhere in an answer, messages to people left out."""
    found: set[str] = set()
    if isinstance(answer, msgspec.Struct):
        for name in answer.__struct_fields__:
            if not name.endswith("message"):
                found |= texts(getattr(answer, name))
    elif isinstance(answer, list):
        for each in answer:
            found |= texts(each)
    elif isinstance(answer, str):
        found.add(answer)
    return found
