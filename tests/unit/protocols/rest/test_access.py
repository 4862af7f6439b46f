"""Who is taken for whom on a listener, request by request, without a node behind it."""

import httpx
import pytest
from msgspec.structs import replace
from tests.unit.protocols.rest.counter import Rest

from mainstem.protocols.listener_policy import ListenerPolicy
from mainstem.protocols.rest.access import HttpAuthenticator, Line
from mainstem.protocols.rest.service import RestService
from mainstem.security.authorisation.authoriser import AllRights, Rights
from mainstem.security.principals import Identity
from mainstem.security.quotas import Quotas


class OpenSecurity:
    """Security of a node on loopback: everybody may do everything."""

    def __init__(self, rest: Rest) -> None:
        self.quotas = Quotas(rest.clock)

    def rights(self, identity: Identity, host: str, *, trusted: bool = False) -> Rights:
        assert trusted
        return AllRights()


def trusting(rest: Rest) -> httpx.AsyncClient:
    """A client of the routes on a listener that trusts whoever reaches it."""
    policy = ListenerPolicy(security=OpenSecurity(rest), trusted=True)  # type: ignore[arg-type]
    return rest.client(authenticator=HttpAuthenticator(policy))


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8080",
        "LOCALHOST:8080",
        "app.localhost:8080",
        "127.0.0.1:8080",
        "[::1]:8080",
        "10.1.2.3",
    ],
)
async def test_this_machines_own_addresses_are_served_without_a_login(
    rest: Rest, host: str
) -> None:
    async with trusting(rest) as http:
        assert (await http.get("/v1/topics", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.test", "evil.test:8080", "localhost.evil.test", "127.0.0.1.evil.test", "[::1", "a b"],
)
async def test_a_name_that_somebody_let_point_here_is_not(rest: Rest, host: str) -> None:
    async with trusting(rest) as http:
        for method, path in (("GET", "/v1/topics"), ("PUT", "/v1/topics/t"), ("GET", "/health")):
            answer = await http.request(method, path, headers={"host": host})
            assert answer.status_code == 403
            assert answer.json()["code"] == "FOREIGN_HOST"


async def test_one_topic_is_described_without_a_look_at_the_others(rest: Rest) -> None:
    for name in ("a", "b", "c"):
        await rest.post(name, {"value": "x" * 10})
    rest.counter.sizes_asked.clear()
    answer = (await rest.http.get("/v1/topics/b")).json()
    assert answer["partitions"][0]["size_bytes"] > 0
    assert rest.counter.sizes_asked == ["b"]


async def test_an_address_that_connects_too_often_is_turned_away(rest: Rest) -> None:
    policy = ListenerPolicy(
        security=OpenSecurity(rest),  # type: ignore[arg-type]
        trusted=True,
        connections_per_minute=3,
    )
    service = RestService(replace(rest.site, authenticator=HttpAuthenticator(policy)))
    port = await service.start("127.0.0.1", 0)
    statuses = []
    try:
        for _ in range(5):
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
                statuses.append((await http.get("/health")).status_code)
        assert statuses == [200, 200, 200, 429, 429]
        rest.clock.now_s += 20  # a third of a minute brings one more
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            assert [(await http.get("/health")).status_code for _ in range(3)] == [200] * 3
    finally:
        await service.stop(timeout_s=1)


def test_a_login_is_news_once_for_a_connection() -> None:
    line = Line()
    assert line.is_changed("Basic a")
    line.note("Basic a")
    assert not line.is_changed("Basic a")
    assert line.is_changed("Basic b")
    assert Line().is_changed("Basic a")
