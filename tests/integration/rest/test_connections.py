"""One HTTP connection keeps to its bounds: real sockets, routes over a counter in memory."""

import asyncio
import json
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.unit.protocols.rest.counter import Rest

from mainstem.model.records.record import Record, build_batch
from mainstem.protocols.rest import incoming, transport
from mainstem.protocols.rest.service import RestService
from mainstem.protocols.rest.transport import HttpLimits

QUICK = HttpLimits(connections_max=20, head_timeout_s=0.3, stalled_write_timeout_s=0.5)


class Served:
    """A listening service and the counter behind it."""

    def __init__(self, rest: Rest, service: RestService, port: int) -> None:
        self.rest = rest
        self.service = service
        self.port = port

    async def connect(self, limit: int = 1 << 20) -> tuple[Reader, Writer]:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=limit)

    async def exchange(self, data: bytes, *, timeout_s: float = 5) -> bytes:
        """Send bytes, and read until the other side closes."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            async with asyncio.timeout(timeout_s):
                return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async def status(self, data: bytes) -> int:
        answer = await self.exchange(data)
        return int(answer.split()[1]) if answer else 0


@asynccontextmanager
async def serving(bounds: HttpLimits = QUICK) -> AsyncIterator[Served]:
    rest = Rest()
    service = RestService(rest.site, bounds)
    port = await service.start("127.0.0.1", 0)
    try:
        yield Served(rest, service, port)
    finally:
        await service.stop(timeout_s=1)
        await rest.http.aclose()
        rest.counter.close()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as made:
        yield made


async def answer_of(reader: Reader) -> tuple[int, dict[str, str], bytes]:
    """One answer of a connection that stays open."""
    async with asyncio.timeout(5):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return int(head[0].split()[1]), headers, body


async def closes(reader: Reader, *, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            while await reader.read(65_536):
                pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True
    return True


GET = b"GET /v1/broker HTTP/1.1\r\nhost: node\r\n\r\n"
LAST = b"GET /v1/broker HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n"


def post(body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST /v1/topics/t/messages HTTP/1.1", b"host: node", *headers]
    if not any(header.startswith((b"content-length", b"transfer")) for header in headers):
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def test_a_connection_serves_one_request_after_the_other(served: Served) -> None:
    reader, writer = await served.connect()
    for _ in range(3):
        writer.write(GET)
        status, headers, body = await answer_of(reader)
        assert status == 200
        assert "date" in headers
        assert json.loads(body)["broker_id"] == 7
    writer.close()


async def test_requests_sent_ahead_are_answered_in_their_order(served: Served) -> None:
    await served.rest.topic("t")
    data = b"".join(post(b'{"value":%d}' % n) for n in range(8))
    reader, writer = await served.connect()
    writer.write(data)
    offsets = [json.loads((await answer_of(reader))[2])["base_offset"] for _ in range(8)]
    assert offsets == list(range(8))
    writer.close()


async def test_too_many_requests_ahead_of_their_answers_end_the_connection(
    served: Served,
) -> None:
    answer = await served.exchange(GET * 2_000)
    assert answer.count(b"HTTP/1.1 200") <= transport.REQUESTS_AHEAD_MAX + 1


async def test_what_is_not_http_is_answered_and_closed(served: Served) -> None:
    for data in (
        b"\x00\x00\x00\x17\x00\x12\x00\x03\x00\x00\x00\x01\x00\x00\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"nonsense\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"CONNECT node:1 HTTP/1.1\r\nhost: node\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ):
        answer = await served.exchange(data)
        assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 40", b"HTTP/1.1 41")), data
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["cause"]
    assert await served.status(LAST) == 200


async def test_a_head_that_is_too_long_is_a_431(served: Served) -> None:
    one_line = b"GET / HTTP/1.1\r\nx: " + b"a" * 70_000 + b"\r\n\r\n"
    many_lines = b"GET / HTTP/1.1\r\n" + b"".join(b"x%d: y\r\n" % n for n in range(15_000))
    endless = b"GET / HTTP/1.1\r\nx: " + b"a" * 1_000_000
    long_path = b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n"
    for data in (one_line, many_lines, endless, long_path):
        assert await served.status(data) in (431, 0)
    assert served.rest.metrics.http_requests[431] == 4


async def test_endless_trailers_and_chunk_extensions_are_cut(served: Served) -> None:
    head = post(b"", b"transfer-encoding: chunked")
    for tail in (
        b"2\r\n{}\r\n0\r\nx: " + b"a" * 1_000_000,
        b"2;x=" + b"a" * 1_000_000,
        b"2\r\n{}\r\n0\r\n" + b"".join(b"x%d: y\r\n" % n for n in range(50_000)),
    ):
        reader, writer = await served.connect()
        writer.write(head + tail)
        assert await closes(reader, within_s=3)
        writer.close()


async def test_a_head_that_does_not_come_is_a_408(served: Served) -> None:
    reader, writer = await served.connect()
    for byte in b"GET /":
        writer.write(bytes([byte]))
        await asyncio.sleep(0.02)
    status, _, _ = await answer_of(reader)
    assert status == 408
    assert await closes(reader, within_s=1)
    writer.close()


async def test_a_connection_that_says_nothing_is_closed(served: Served) -> None:
    reader, writer = await served.connect()
    assert await closes(reader, within_s=2)
    writer.close()


async def test_a_body_that_does_not_come_is_a_408(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "BODY_TIMEOUT_S", 0.2)
    answer = await served.exchange(post(b'{"va', b"content-length: 100"))
    assert b" 408 " in answer
    assert b"REQUEST_TIMEOUT" in answer


async def test_a_body_that_is_too_long_is_answered_before_all_of_it_has_arrived(
    served: Served,
) -> None:
    claimed = await served.exchange(post(b"x" * 50_000, b"content-length: 3000000000"))
    assert b" 413 " in claimed
    chunks = b"".join(b"2710\r\n" + b"x" * 10_000 + b"\r\n" for _ in range(10))
    reader, writer = await served.connect()
    writer.write(post(b"", b"transfer-encoding: chunked") + chunks)  # no end
    status, headers, body = await answer_of(reader)
    assert (status, headers["connection"]) == (413, "close")
    assert json.loads(body)["code"] == "BODY_TOO_LARGE"
    assert await closes(reader, within_s=1)
    writer.close()


async def test_a_refused_body_that_ends_leaves_the_connection_usable(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(post(b"x" * 60_000))
    status, headers, _ = await answer_of(reader)
    assert status == 413
    assert "connection" not in headers
    writer.write(GET)
    assert (await answer_of(reader))[0] == 200
    writer.close()


async def test_a_client_that_asks_first_is_not_told_to_send_what_would_be_refused(
    served: Served,
) -> None:
    answer = await served.exchange(
        post(b"", b"content-length: 30000", b"expect: 100-continue", b"connection: close")
    )
    assert answer.startswith(b"HTTP/1.1 413")
    reader, writer = await served.connect()
    writer.write(post(b"", b"content-length: 13", b"expect: 100-continue"))
    async with asyncio.timeout(2):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
    writer.write(b'{"value":"v"}')
    assert (await answer_of(reader))[0] == 200
    writer.close()


async def test_a_peer_that_has_finished_sending_still_gets_its_answer(served: Served) -> None:
    await served.rest.topic("t")
    held = served.rest.counter.partition("t", 0).held = asyncio.Event()
    reader, writer = await served.connect()
    writer.write(post(b'{"value":"v"}'))
    writer.write_eof()
    await asyncio.sleep(0.1)
    held.set()
    status, _, _ = await answer_of(reader)
    assert status == 200
    assert await closes(reader, within_s=1)
    writer.close()


async def test_a_peer_that_goes_away_in_the_middle_disturbs_nobody(served: Served) -> None:
    for data in (b"GET", post(b"{", b"content-length: 10"), GET):
        _, writer = await served.connect()
        writer.write(data)
        await writer.drain()
        writer.transport.abort()
    assert await served.status(LAST) == 200


async def test_a_peer_that_takes_no_answer_is_cut_and_its_memory_given_back() -> None:
    async with serving() as served:
        await served.rest.topic("t")
        for _ in range(10):
            await served.rest.counter.append("t", 0, _large_batch())
        left = served.rest.site.held._left
        _, writer = await served.connect(limit=1_024)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /v1/topics/t/messages HTTP/1.1\r\nhost: node\r\n\r\n")
        await _until(lambda: served.rest.site.held._left < left)
        await _until(lambda: served.rest.site.held._left == left)
        assert served.rest.metrics.connections_active == 0
        writer.transport.abort()


async def test_connections_beyond_the_bound_are_told_so(served: Served) -> None:
    opened = [await served.connect() for _ in range(QUICK.connections_max)]
    await asyncio.sleep(0.05)
    extra, writer = await served.connect()
    status, _, body = await answer_of(extra)
    assert (status, json.loads(body)["code"]) == (503, "OVERLOADED")
    assert served.rest.metrics.connections_rejected == 1
    writer.close()
    for _, open_writer in opened:
        open_writer.close()
    await asyncio.sleep(0.05)
    assert await served.status(LAST) == 200


async def test_an_upgrade_is_not_taken_up(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(
        b"GET /v1/broker HTTP/1.1\r\nhost: node\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    )
    assert (await answer_of(reader))[0] == 200
    writer.close()


async def test_stopping_lets_requests_in_flight_finish(served: Served) -> None:
    await served.rest.topic("t")
    held = served.rest.counter.partition("t", 0).held = asyncio.Event()
    reader, writer = await served.connect()
    idle, idle_writer = await served.connect()
    idle_writer.write(GET)
    await answer_of(idle)
    writer.write(post(b'{"value":"v"}'))
    await asyncio.sleep(0.05)
    stopping = asyncio.create_task(served.service.stop(timeout_s=5))
    assert await closes(idle, within_s=1)
    assert not stopping.done()
    held.set()
    status, headers, _ = await answer_of(reader)
    assert (status, headers["connection"]) == (200, "close")
    async with asyncio.timeout(2):
        await stopping
    with pytest.raises(ConnectionRefusedError):
        await served.connect()
    writer.close()
    idle_writer.close()


async def test_stopping_cuts_what_does_not_finish_in_time(served: Served) -> None:
    await served.rest.topic("t")
    served.rest.counter.partition("t", 0).held = asyncio.Event()
    reader, writer = await served.connect()
    writer.write(post(b'{"value":"v"}'))
    await asyncio.sleep(0.05)
    async with asyncio.timeout(2):
        await served.service.stop(timeout_s=0.1)
    assert await closes(reader, within_s=1)
    writer.close()


async def test_a_stopping_node_refuses_new_work_on_old_connections(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(GET)
    assert (await answer_of(reader))[0] == 200
    served.service.refuse_new()
    writer.write(b"GET /health HTTP/1.1\r\nhost: node\r\n\r\n")
    assert (await answer_of(reader))[0] == 200
    writer.write(GET)
    status, headers, body = await answer_of(reader)
    assert (status, headers["retry-after"]) == (503, "1")
    assert json.loads(body)["code"] == "SHUTTING_DOWN"
    assert await closes(reader, within_s=1)
    writer.close()


def _large_batch() -> bytearray:
    return build_batch([Record(0, 1, None, b"x" * 700_000)])


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)
