"""Webhooks: the suite, receivers that fail, requests that are cut off, limits and logins."""

import contextlib
import hashlib
import hmac
import http.server
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainstem.model.errors import InvalidRequest, Unavailable
from mainstem.pipelines.connector.shapes import ConnectorContext, FindingSeverity
from mainstem.pipelines.connectors import http_webhook
from mainstem.pipelines.connectors.http_webhook import (
    WebhookSinkConfig,
    WebhookSourceConfig,
    deliver,
    sender_settings,
)
from mainstem.pipelines.webhook.listener import ListenerSettings, WebhookListener
from mainstem.pipelines.webhook.spool import Request, RequestSpool
from mainstem.testing.connector_suite import SinkSuite, SourceSuite

pytestmark = pytest.mark.timeout(180)

MIB = 1024 * 1024


class Receiver:
    """Takes requests; ``answer`` decides the status of each."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes]] = []
        self.seen: list[dict[str, str]] = []
        self.answer: Callable[[int, bytes], tuple[int, dict[str, str]]] = lambda n, body: (204, {})
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.seen.append(dict(self.headers))
                status, headers = outer.answer(len(outer.seen), body)
                if status < 300:
                    outer.taken.append((self.headers["Idempotency-Key"], body))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_OPTIONS(self) -> None:
                wrong = self.headers.get("Authorization") == "Bearer wrong-token"
                self.send_response(401 if wrong else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    @property
    def once(self) -> list[bytes]:
        """What a receiver keeps that remembers idempotency keys."""
        return list(dict(self.taken).values())


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


class TestWebhookSink(SinkSuite):
    connector = http_webhook.SINK

    @pytest.fixture(autouse=True)
    def _received(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def config(self, tmp_path: Path) -> dict[str, object]:
        return {"url": self.receiver.url, "token": "right-token"}

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        return {"url": self.receiver.url, "token": "wrong-token"}

    def written(self, tmp_path: Path) -> list[bytes]:
        return self.receiver.once  # exactly once, seen from such a receiver


class TestWebhookSource(SourceSuite):
    connector = http_webhook.SOURCE
    rows = 25

    def config(self, tmp_path: Path) -> dict[str, object]:
        return {"port": 0, "key": "n"}

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        return {"port": 0, "host": "0.0.0.0"}

    @pytest.fixture(autouse=True)
    def _kept(self, tmp_path: Path) -> None:
        spool = RequestSpool(tmp_path / "connector" / "spool", bytes_max=MIB)
        spool.add([Request(f'{{"n":{n}}}'.encode(), [("h", b"v")], n) for n in range(self.rows)])
        spool.close()


def fast(url: str, **given: Any) -> Any:
    config = WebhookSinkConfig(
        url=url, initial_backoff_ms=1, max_backoff_ms=20, timeout_ms=5_000, **given
    )
    return sender_settings(config)


def numbered(spark: Any, rows: int) -> Any:
    made = [(f"k{n % 4}".encode(), f'{{"n":{n}}}'.encode()) for n in range(rows)]
    return spark.createDataFrame(made, "key binary, value binary").coalesce(1)


def test_outages_of_a_receiver_are_waited_out_and_every_key_keeps_its_order(
    spark: Any, tmp_path: Path, receiver: Receiver
) -> None:
    # Every third request fails: overload, a broken server, an order to wait.
    answers = {0: (503, {}), 1: (500, {}), 2: (429, {"Retry-After": "0"})}
    receiver.answer = lambda n, body: answers[n // 3 % 3] if n % 3 == 0 else (200, {})

    deliver(numbered(spark, 40), "p-q-0", fast(receiver.url, concurrency=3), _context(tmp_path))

    found = [json.loads(body)["n"] for body in receiver.once]
    assert sorted(found) == list(range(40))
    for key in range(4):
        own = [n for n in found if n % 4 == key]
        assert own == sorted(own)
    assert {key for key, _ in receiver.taken} == {f"p-q-0-{n}" for n in range(40)}


def failing_after(last: int) -> Callable[[int, bytes], tuple[int, dict[str, str]]]:
    return lambda n, body: (200 if n <= last else 503, {})


def test_a_batch_that_breaks_off_is_taken_once_when_it_is_repeated(
    spark: Any, tmp_path: Path, receiver: Receiver
) -> None:
    for outage in (5, 12, 21):
        receiver.seen.clear()
        receiver.answer = failing_after(outage)
        with pytest.raises(Unavailable, match="not delivered in 2 attempts: HTTP 503"):
            deliver(numbered(spark, 30), "p-q-7", fast(receiver.url, retries=1), _context(tmp_path))
    receiver.answer = lambda n, body: (200, {})
    deliver(numbered(spark, 30), "p-q-7", fast(receiver.url, retries=1), _context(tmp_path))
    expected = Counter(f'{{"n":{n}}}'.encode() for n in range(30))
    assert Counter(receiver.once) == expected


class Letters:
    def __init__(self) -> None:
        self.rows: list[Any] = []

    def send(self, refused: Any) -> None:
        self.rows += refused.collect()


def _context(tmp_path: Path, letters: Letters | None = None) -> ConnectorContext:
    return ConnectorContext(pipeline="sinks.hook", state_dir=tmp_path, dead_letters=letters)


def test_what_a_receiver_refuses_is_a_dead_letter_and_holds_nothing_up(
    spark: Any, tmp_path: Path, receiver: Receiver
) -> None:
    letters = Letters()
    receiver.answer = lambda n, body: (422 if b'"n":3}' in body else 200, {})
    deliver(numbered(spark, 9), "p-q-0", fast(receiver.url), _context(tmp_path, letters))
    assert len(receiver.once) == 8
    [letter] = letters.rows
    assert bytes(letter.value) == b'{"n":3}'
    assert letter.error == "HTTP 422"
    with pytest.raises(InvalidRequest, match="dead_letter_topic"):
        deliver(numbered(spark, 9), "p-q-1", fast(receiver.url), _context(tmp_path))


def test_a_refused_login_stops_the_sink(spark: Any, tmp_path: Path, receiver: Receiver) -> None:
    receiver.answer = lambda n, body: (403, {})
    with pytest.raises(InvalidRequest, match="check token"):
        deliver(numbered(spark, 3), "p-q-0", fast(receiver.url), _context(tmp_path))


def test_nobody_at_home_is_a_finding() -> None:
    [finding] = http_webhook.SINK.check(WebhookSinkConfig(url="http://127.0.0.1:9/"))
    assert finding.severity is FindingSeverity.ERROR
    assert finding.retriable


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[RequestSpool]:
    made = RequestSpool(tmp_path / "spool", bytes_max=20_000)
    yield made
    made.close()


def listening(spool: RequestSpool, **given: Any) -> WebhookListener:
    listener = WebhookListener(
        ListenerSettings(host="127.0.0.1", port=0, path="/in", **given), spool
    )
    listener.start()
    return listener


def test_an_accepted_request_is_on_disk(spool: RequestSpool, tmp_path: Path) -> None:
    listener = listening(spool, token="sesame", forward_headers=("x-kind",))
    url = f"http://127.0.0.1:{listener.port}/in"
    try:
        assert httpx.post(url, content=b"a").status_code == 401
        login = {"Authorization": "Bearer sesame", "X-Kind": "order"}
        assert httpx.post(url, content=b"one", headers=login).status_code == 202
        # Seen by another who opens the folder, as after a crash.
        with contextlib.closing(RequestSpool(tmp_path / "spool", bytes_max=MIB)) as other:
            found = other.read(0, 1)
        assert [(each.body, each.headers) for each in found] == [(b"one", [("x-kind", b"order")])]
    finally:
        listener.close()


def test_a_repeated_idempotency_key_is_kept_once_also_after_a_restart(spool: RequestSpool) -> None:
    for _ in range(2):
        listener = listening(spool)
        url = f"http://127.0.0.1:{listener.port}/in"
        try:
            for _ in range(3):
                answer = httpx.post(url, content=b"x", headers={"Idempotency-Key": "k1"})
                assert answer.status_code == 202
        finally:
            listener.close()
    assert spool.until == 1


def test_a_full_buffer_and_large_bodies_are_refused(spool: RequestSpool) -> None:
    listener = listening(spool, body_bytes_max=9_000)
    url = f"http://127.0.0.1:{listener.port}/in"
    try:
        assert httpx.post(url, content=b"x" * 9_001).status_code == 413
        codes = [httpx.post(url, content=b"x" * 8_000).status_code for _ in range(3)]
        assert codes == [202, 202, 503]
        spool.drop(2)  # their records are in the topic
        assert httpx.post(url, content=b"x" * 8_000).status_code == 202
    finally:
        listener.close()


def test_a_signature_is_verified(spool: RequestSpool) -> None:
    listener = listening(spool, signature_secret="key")
    url = f"http://127.0.0.1:{listener.port}/in"
    good = "sha256=" + hmac.new(b"key", b"body", hashlib.sha256).hexdigest()
    try:
        for signature, status in ((good, 202), ("sha256=00", 401)):
            headers = {"X-Hub-Signature-256": signature}
            assert httpx.post(url, content=b"body", headers=headers).status_code == status
    finally:
        listener.close()


def test_a_torn_request_is_cut_off_and_numbers_go_on(tmp_path: Path) -> None:
    spool = RequestSpool(tmp_path / "s", bytes_max=MIB)
    spool.add([Request(b"one", [], 1), Request(b"two", [], 2)])
    spool.close()
    [file] = (tmp_path / "s").iterdir()
    for cut in (1, 7):
        with file.open("ab") as out:
            out.write(b"\x00\x00\x00\x09"[:cut])
        again = RequestSpool(tmp_path / "s", bytes_max=MIB)
        assert again.until == 2
        again.close()
    last = RequestSpool(tmp_path / "s", bytes_max=MIB)
    last.drop(2)
    last.close()
    fresh = RequestSpool(tmp_path / "s", bytes_max=MIB)
    assert (fresh.start, fresh.until) == (2, 2)
    fresh.add([Request(b"three", [], 3)])
    assert [each.body for each in fresh.read(2, 3)] == [b"three"]
    fresh.close()


def test_a_listener_for_strangers_asks_for_a_login() -> None:
    open_to_all = WebhookSourceConfig(port=0, host="0.0.0.0")
    assert http_webhook.SOURCE.check(open_to_all)[0].severity is FindingSeverity.ERROR
    for given in ({"token": "t"}, {"signature_secret": "s"}, {"insecure": True}):
        config = WebhookSourceConfig(port=0, host="0.0.0.0", **given)
        assert http_webhook.SOURCE.check(config)[0].severity is FindingSeverity.OK
