"""Requests that no client would send, on the HTTP port of a real node.

The bounds of one connection (heads, time-outs, pipelines) have their stories in
``tests/integration/rest/test_connections.py``; here the whole node has to live with it.
"""

import json
import random
import socket
import threading
import time
import zlib
from collections.abc import Iterator

import httpx
import pytest
from tests.integration.bad_input.wire import PeakRss, Raw, Witness, open_files, rss_bytes

from mainstem.testing.local_node import LocalNode

MIB = 1 << 20
BODY_BYTES_MAX = 1 * MIB

pytestmark = pytest.mark.usefixtures("witness")


@pytest.fixture(scope="module")
def http(node: LocalNode) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{node.http}", timeout=30) as made:
        yield made


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    head = [f"{method} {path} HTTP/1.1", "host: localhost", "connection: close", *headers]
    if body:
        head.append(f"content-length: {len(body)}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


GOOD = [
    request("GET", "/v1/topics"),
    request("GET", "/v1/topics/witness/messages?offset=0&limit=2&encoding=base64"),
    request("POST", "/v1/topics/mutants/messages", b'{"messages":[{"key":"k","value":"v"}]}'),
    request("PUT", "/v1/topics/mutants", b'{"partitions":1,"configs":{"retention.ms":"1000"}}'),
    request("GET", "/v1/groups/some%2Fgroup"),
    request("DELETE", "/v1/topics/absent"),
    request("GET", "/metrics", b"", "accept: application/json"),
]


def answered(node: LocalNode, data: bytes) -> int:
    """The status, or 0 where the node closed without one; a hanging connection fails."""
    with Raw(node.http, timeout_s=15) as raw:
        raw.send(data)
        raw.socket.shutdown(socket.SHUT_WR)
        answer = raw.read_all()
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_are_refused(node: LocalNode, seed: int) -> None:
    chance = random.Random(seed)
    data = chance.randbytes(chance.randint(1, 5_000))
    assert answered(node, data) in (0, 400, 431)


@pytest.mark.parametrize("seed", range(150))
def test_a_real_request_with_a_few_bytes_changed_is_answered_or_refused(
    node: LocalNode, seed: int
) -> None:
    chance = random.Random(seed)
    data = bytearray(GOOD[seed % len(GOOD)])
    for _ in range(chance.randint(1, 5)):
        at = chance.randint(0, len(data) - 1)
        match chance.randint(0, 2):
            case 0:
                data[at] = chance.randint(0, 255)
            case 1:
                del data[at]
            case _:
                data[at:at] = chance.randbytes(chance.randint(1, 8))
    assert answered(node, bytes(data)) in {0, 200, 201, *range(400, 432)}


def test_a_request_cut_anywhere_is_forgotten(node: LocalNode) -> None:
    whole = GOOD[2].replace(b"mutants", b"cut")
    for until in range(0, len(whole), 3):
        assert answered(node, whole[:until]) == 0


@pytest.mark.parametrize("seed", range(60))
def test_json_that_almost_fits_is_stored_or_refused_and_never_worse(
    http: httpx.Client, seed: int
) -> None:
    chance = random.Random(seed)
    body = bytearray(
        json.dumps(
            {
                "messages": [
                    {
                        "key": "k",
                        "value": {"a": [1, None, "\u00e9"]},
                        "headers": [{"name": "h", "value": "AA==", "encoding": "base64"}],
                        "partition": 0,
                        "timestamp": 1_700_000_000_000,
                    }
                ]
            }
        ).encode()
    )
    for _ in range(chance.randint(1, 3)):
        body[chance.randint(0, len(body) - 1)] = chance.randint(0, 255)
    answer = http.post("/v1/topics/mutants/messages", content=bytes(body))
    assert answer.status_code in (200, 400, 404), answer.text
    assert answer.json()


@pytest.mark.parametrize(
    "name",
    ["..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "a%00b", "a%0ab", "%ff", "x" * 250, "a b", "a~b"],
)
def test_an_illegal_name_reaches_no_file(node: LocalNode, http: httpx.Client, name: str) -> None:
    name = name.replace(".", "%2E")
    for method, tail, body in (
        ("PUT", "", b"{}"),
        ("GET", "", b""),
        ("DELETE", "", b""),
        ("POST", "/messages", b'{"value":"v"}'),
        ("GET", "/messages", b""),
    ):
        answer = http.request(method, f"/v1/topics/{name}{tail}", content=body)
        assert answer.status_code in (400, 404), (method, answer.text)
    names = {path.name for path in (node.data_dir / "topics").iterdir()}
    assert all(entry.startswith(("witness~", "mutants~", "floods~", "__")) for entry in names)


@pytest.mark.parametrize(
    "query",
    [
        "limit=abc",
        "limit=-1",
        "limit=99999999999999999999",
        "limit=%00",
        "limit=1&limit=2",
        "offset=9223372036854775808",
        "partition=2147483648",
        "from_timestamp=9223372036854775808",
    ],
)
def test_a_bad_parameter_is_a_400(http: httpx.Client, query: str) -> None:
    answer = http.get(f"/v1/topics/witness/messages?{query}")
    assert answer.status_code == 400
    assert answer.json()["cause"]


@pytest.mark.parametrize("size", [BODY_BYTES_MAX + 1, 5 * MIB, 50 * MIB])
def test_a_body_over_the_limit_is_a_413_and_takes_no_memory(node: LocalNode, size: int) -> None:
    claimed = request("POST", "/v1/topics/floods/messages", b"", f"content-length: {size}")
    chunked = request("POST", "/v1/topics/floods/messages", b"", "transfer-encoding: chunked")
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    with PeakRss(node) as memory:
        for head, piece in ((claimed, b"x" * 65_536), (chunked, chunk)):
            with Raw(node.http) as raw:
                raw.send(head)
                sent = 0
                while sent < size + len(piece) and raw.send(piece):
                    sent += len(piece)
                answer = raw.read_all()
                # A peer that goes on sending far too much may find the connection reset.
                assert not answer or b" 413 " in answer
    assert memory.growth < 8 * MIB


def test_a_body_of_exactly_the_limit_is_stored_or_refused_by_its_topic(
    http: httpx.Client,
) -> None:
    http.put("/v1/topics/floods", json={"configs": {"max.message.bytes": "2000000"}})
    head, tail = b'{"value":"', b'"}'
    body = head + b"x" * (BODY_BYTES_MAX - len(head) - len(tail)) + tail
    assert http.post("/v1/topics/floods/messages", content=body).status_code == 200
    assert http.post("/v1/topics/floods/messages", content=body + b" ").status_code == 413


def test_a_compressed_body_is_refused_unopened(node: LocalNode, http: httpx.Client) -> None:
    bomb = zlib.compress(bytes(200 * MIB), 9)
    with PeakRss(node) as memory:
        answer = http.post(
            "/v1/topics/floods/messages", content=bomb, headers={"content-encoding": "deflate"}
        )
    assert answer.status_code == 415
    assert memory.growth < 8 * MIB


@pytest.mark.parametrize(
    "body",
    [
        b'{"value":' + b"[" * 500_000,
        b'{"value":' + b'{"a":' * 170_000,
        b"[" * 1_000_000,
        b'{"messages":[' + b"{}," * 300_000 + b"{}]}",
        b'{"value":"v","headers":{' + b'"a":"b",' * 100_000 + b'"a":"b"}}',
        b'{"value":"v","timestamp":' + b"9" * 900_000 + b"}",
        b'{"value":"' + b"\\u0000" * 170_000,
    ],
    ids=["arrays", "objects", "bare arrays", "empty messages", "headers", "digits", "no end"],
)
def test_a_body_made_to_exhaust_is_answered_quickly_and_within_bounds(
    node: LocalNode, http: httpx.Client, body: bytes
) -> None:
    started = time.monotonic()
    with PeakRss(node) as memory:
        answer = http.post("/v1/topics/floods/messages", content=body)
    assert answer.status_code in (200, 400), answer.text
    assert time.monotonic() - started < 10
    assert memory.growth < 150 * MIB


def test_the_largest_window_is_bounded(node: LocalNode, http: httpx.Client) -> None:
    for _ in range(12):
        http.post(
            "/v1/topics/floods/messages", json=[{"value": "\x00" * 20_000}] * 8
        ).raise_for_status()
    with PeakRss(node) as memory:
        answer = http.get("/v1/topics/floods/messages?limit=10000")
    assert answer.status_code == 200
    assert len(answer.content) < 80 * MIB
    assert memory.growth < 150 * MIB


def test_slow_and_silent_connections_disturb_nobody(node: LocalNode, witness: Witness) -> None:
    before = rss_bytes(node)
    slow = [Raw(node.http) for _ in range(300)]
    for n, raw in enumerate(slow):
        raw.send((b"", b"GET", b"GET / HTTP/1.1\r\nx", GOOD[2][:-5])[n % 4])
    started = time.monotonic()
    witness.check()
    assert time.monotonic() - started < 3
    assert rss_bytes(node) - before < 40 * MIB
    for raw in slow:
        raw.socket.close()


def test_connections_beyond_the_bound_are_refused_and_the_kafka_port_does_not_notice(
    node: LocalNode,
) -> None:
    opened = [Raw(node.http) for _ in range(1_050)]
    time.sleep(0.5)
    refused = 0
    for raw in opened:
        raw.socket.settimeout(0.001)
        try:
            refused += b" 503 " in raw.read(30)
        except TimeoutError:
            continue
    assert 40 <= refused <= 60
    for raw in opened:
        raw.socket.close()
    time.sleep(0.5)


def test_connections_that_come_and_go_leave_nothing_behind(node: LocalNode) -> None:
    before = open_files(node)
    for n in range(300):
        raw = Raw(node.http)
        raw.send(GOOD[n % len(GOOD)][: n % 40])
        if n % 2:
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        raw.socket.close()
    deadline = time.monotonic() + 5
    while open_files(node) > before + 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert open_files(node) <= before + 3


def test_a_flood_of_requests_leaves_room_for_others(node: LocalNode, witness: Witness) -> None:
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            with Raw(node.http) as raw:
                raw.send(request("GET", "/v1/topics/witness/messages") * 50)
                raw.read_all()

    floods = [threading.Thread(target=flood) for _ in range(4)]
    for thread in floods:
        thread.start()
    try:
        time.sleep(0.5)
        witness.check()
    finally:
        stop.set()
        for thread in floods:
            thread.join()
