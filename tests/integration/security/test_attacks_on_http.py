"""Attacks on an HTTP listener that asks for a login, made by somebody who has none."""

import contextlib
import gzip
import re
import socket
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.integration.security import requests
from tests.integration.security.kit import ADMIN_PASSWORD, USER_PASSWORD, SecureNode, rule
from tests.integration.security.lasting import flags

import mainstem
from mainstem.model.limits import MIB
from mainstem.security.authorisation.acl import Operation, ResourceType

BASIC = "Basic " + b64encode(f"admin:{ADMIN_PASSWORD}".encode()).decode()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    with SecureNode(tmp_path_factory.mktemp("web"), *flags({"http.login": "true"})) as made:
        with made.client() as admin:
            admin.ask(*requests.create_topic("web"))
        yield made


class Raw:
    """Bytes to the HTTP port, and the head of what comes back."""

    def __init__(self, node: SecureNode) -> None:
        host, port = node.http.split(":")
        self.socket = socket.create_connection((host, int(port)), 10)

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def status(self) -> int:
        data = b""
        while b"\r\n" not in data:
            piece = self.socket.recv(65_536)
            if not piece:
                return 0
            data += piece
        return int(data.split(b" ", 2)[1])


def ask(node: SecureNode, head: str, body: bytes = b"") -> int:
    with Raw(node) as raw:
        raw.socket.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        return raw.status()


def memory_bytes(node: SecureNode) -> int:
    return int(psutil.Process(node.pid).memory_info().rss)


@pytest.mark.parametrize("length", [2**31 - 1, 2**63 - 1, 2**64, 16 * MIB])
def test_a_length_before_login_takes_no_memory(node: SecureNode, length: int) -> None:
    before = memory_bytes(node)
    status = ask(
        node,
        f"POST /v1/topics/web/messages HTTP/1.1\nHost: x\nContent-Length: {length}",
        bytes(100_000),
    )
    assert status in (400, 401, 413)
    assert memory_bytes(node) - before < 2 * MIB


def test_a_body_without_a_login_is_not_collected(node: SecureNode) -> None:
    before, peak = memory_bytes(node), 0
    with Raw(node) as raw:
        raw.socket.sendall(
            b"POST /v1/topics/web/messages HTTP/1.1\r\nHost: x\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        with contextlib.suppress(ConnectionError, TimeoutError):
            for _ in range(64):
                raw.socket.sendall(b"100000\r\n" + bytes(MIB) + b"\r\n")
                peak = max(peak, memory_bytes(node))
        with contextlib.suppress(ConnectionError):
            assert raw.status() in (401, 413)
    assert peak - before < 4 * MIB


def test_a_bomb_without_a_login_is_not_opened(node: SecureNode) -> None:
    bomb = gzip.compress(bytes(100 * MIB))
    before = memory_bytes(node)
    status = ask(
        node,
        "POST /v1/topics/web/messages HTTP/1.1\nHost: x\nContent-Encoding: gzip\n"
        f"Content-Length: {len(bomb)}",
        bomb,
    )
    assert status in (401, 415)
    assert memory_bytes(node) - before < 4 * MIB


@pytest.mark.parametrize(
    "extra",
    [
        "X-Forwarded-User: admin",
        "Remote-User: admin",
        "X-Remote-User: User:admin",
        "Proxy-Authorization: " + BASIC,
        "Cookie: user=admin; session=admin",
        "X-Forwarded-For: 127.0.0.1",
        "X-HTTP-Method-Override: GET",
        "Authorization: Basic OnB3\nAuthorization: " + BASIC,
        "Authorization: " + BASIC + "\nAuthorization: Basic OnB3",
        "Authorization: " + BASIC + ", " + BASIC,
        "authorization : " + BASIC,
    ],
)
def test_impersonation_a_header_does_not_say_who_one_is(node: SecureNode, extra: str) -> None:
    status = ask(node, f"GET /v1/users HTTP/1.1\nHost: x\n{extra}")
    assert status in (400, 401), extra


@pytest.mark.parametrize(
    "target",
    [
        "/v1/users?user=admin",
        f"/v1/users?access_token={BASIC.split()[1]}",
        f"http://admin:{ADMIN_PASSWORD.replace(' ', '%20')}@x/v1/users",
        "//v1/users",
        "/v1/../v1/users",
        "/health/../v1/users",
        "/health/%2e%2e/v1/users",
        "/V1/users",
        "/v1/users/",
        "/v1/users;/health",
        "/v1/users#/health",
        "/v1/users%00/health",
    ],
)
def test_every_http_path_requires_credentials(node: SecureNode, target: str) -> None:
    status = ask(node, f"GET {target} HTTP/1.1\nHost: x")
    assert status in (400, 401, 404), target
    assert status != 200


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "CONNECT", "PATCH", "PROPFIND"])
def test_no_credentials_whatever_the_method(node: SecureNode, method: str) -> None:
    assert ask(node, f"{method} /v1/users HTTP/1.1\nHost: x") in (400, 401, 405)


def test_a_login_counts_for_its_own_request_only(node: SecureNode) -> None:
    with Raw(node) as raw:
        good = f"GET /v1/users HTTP/1.1\r\nHost: x\r\nAuthorization: {BASIC}\r\n\r\n"
        raw.socket.sendall(good.encode())
        assert raw.status() == 200
        raw.socket.sendall(b"GET /v1/users HTTP/1.1\r\nHost: x\r\n\r\n")
        assert raw.status() == 401


def test_http_2_is_not_spoken_and_hangs_nobody(node: SecureNode) -> None:
    with Raw(node) as raw:
        raw.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9) * 1_000)
        with contextlib.suppress(ConnectionResetError):
            assert raw.status() in (0, 400, 505)


@pytest.mark.parametrize("name", ["..%2F..%2Fescaped", "%2Fetc%2Fescaped", "..", "a%00b", "%5C.."])
@pytest.mark.parametrize("kind", ["users", "roles"])
def test_path_traversal_names_reach_no_file(node: SecureNode, kind: str, name: str) -> None:
    body = b'{"password":"p"}' if kind == "users" else b'{"rules":[]}'
    files = set(node.data_dir.parent.rglob("*"))
    status = ask(
        node,
        f"PUT /v1/{kind}/{name} HTTP/1.1\nHost: x\nAuthorization: {BASIC}\n"
        f"Content-Type: application/json\nContent-Length: {len(body)}",
        body,
    )
    assert status in (200, 201, 400, 404, 405)
    assert set(node.data_dir.parent.rglob("*")) <= files | {node.data_dir / "audit.jsonl"}


def test_a_stranger_who_floods_leaves_room_for_others(node: SecureNode) -> None:
    node.make_user("busy", rule("busy", Operation.READ, (ResourceType.TOPIC, "web")))
    login = b64encode(f"busy:{USER_PASSWORD}".encode()).decode()
    strangers = [Raw(node) for _ in range(50)]
    try:
        for raw in strangers:
            raw.socket.sendall(b"GET /v1/users HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        start = time.monotonic()
        head = f"GET /v1/topics/web HTTP/1.1\nHost: x\nAuthorization: Basic {login}"
        assert ask(node, head) == 200
        assert time.monotonic() - start < 5
    finally:
        for raw in strangers:
            raw.socket.close()


def test_nothing_is_unpickled() -> None:
    """What could run code while it is read is not even imported."""
    names = "pickle|marshal|shelve|dill|cloudpickle|jsonpickle"
    wanted = re.compile(rf"^\s*(?:import|from)\s+(?:{names})\b", re.MULTILINE)
    sources = Path(mainstem.__path__[0]).rglob("*.py")
    assert not [path for path in sources if wanted.search(path.read_text())]
