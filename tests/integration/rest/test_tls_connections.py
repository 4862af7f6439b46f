"""HTTPS connections keep to their bounds as plain ones do: real sockets, both event loops."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
import trustme
from tests.unit.protocols.rest.counter import Rest

from mainstem.model.errors import Unavailable
from mainstem.model.records.record import Record, build_batch
from mainstem.protocols.rest.handler_context import HELD_BYTES_MAX
from mainstem.protocols.rest.service import RestService
from mainstem.protocols.rest.transport import HttpLimits

QUICK = HttpLimits(connections_max=5, head_timeout_s=0.3, stalled_write_timeout_s=0.5)
LARGE = "large"

pytestmark = pytest.mark.usefixtures("each_loop")


class Secured:
    """A listening service, and TLS that trusts it."""

    def __init__(self, rest: Rest, port: int, trusting: ssl.SSLContext) -> None:
        self.rest = rest
        self.port = port
        self.trusting = trusting

    def is_budget_free(self) -> bool:
        """Whether no answer holds memory: the handler of a lost connection ends after it."""
        try:
            self.rest.site.held.take(HELD_BYTES_MAX)
        except Unavailable:
            return False
        self.rest.site.held.give_back(HELD_BYTES_MAX)
        return True

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what the other side does."""
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110 - it is told by a figure only
                await asyncio.sleep(0.02)


@asynccontextmanager
async def serving() -> AsyncIterator[Secured]:
    rest = Rest()
    authority = trustme.CA()
    own, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(own)
    authority.configure_trust(trusting)
    service = RestService(rest.site, QUICK)
    port = await service.start("127.0.0.1", 0, own)
    await rest.topic(LARGE)
    for _ in range(6):
        batch = build_batch([Record(0, 1, None, b"x" * 1_000_000)])
        await rest.counter.append(LARGE, 0, batch)
    try:
        yield Secured(rest, port, trusting)
    finally:
        await service.stop(timeout_s=1)
        await rest.http.aclose()
        rest.counter.close()


async def test_a_peer_that_takes_no_answer_is_cut_and_what_it_held_is_given_back() -> None:
    async with serving() as node:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", node.port, ssl=node.trusting, limit=1
        )
        ask = f"GET /v1/topics/{LARGE}/messages HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        writer.write(ask.encode() * 8)
        metrics = node.rest.metrics
        await node.until(lambda: metrics.connections_active == 1)
        await node.until(lambda: metrics.connections_active == 0)
        await node.until(node.is_budget_free)
        writer.transport.abort()


async def test_a_silent_peer_and_a_slow_head_are_cut() -> None:
    async with serving() as node:
        for said in (b"", b"GET / HTTP/1.1\r\nhost: "):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", node.port, ssl=node.trusting
            )
            writer.write(said)
            async with asyncio.timeout(3):
                answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 408" if said else b"")
            writer.close()


async def test_large_answers_arrive_whole() -> None:
    async with (
        serving() as node,
        httpx.AsyncClient(base_url=f"https://127.0.0.1:{node.port}", verify=node.trusting) as http,
    ):
        for _ in range(3):
            answer = await http.get(f"/v1/topics/{LARGE}/messages")
            assert [len(each["value"]) for each in answer.json()] == [1_000_000] * 6


async def test_who_never_finishes_a_handshake_counts_as_a_connection() -> None:
    async with serving() as node:
        silent = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(5)]
        try:
            await asyncio.sleep(0.1)
            with socket.create_connection(("127.0.0.1", node.port)) as late:
                late.setblocking(False)
                loop = asyncio.get_running_loop()
                async with asyncio.timeout(2):
                    assert await loop.sock_recv(late, 1) == b""
        finally:
            for peer in silent:
                peer.close()
        await asyncio.sleep(0.1)
        async with httpx.AsyncClient(
            base_url=f"https://127.0.0.1:{node.port}", verify=node.trusting
        ) as http:
            assert (await http.get("/health")).status_code == 200
