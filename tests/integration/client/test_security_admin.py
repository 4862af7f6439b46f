"""Passwords, quotas and rules are administered alike on a node and on Apache Kafka."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from mainstem.client.acl_admin import Acl, AclWish
from mainstem.client.admin import Admin
from mainstem.model.errors import ErrorCode, InvalidRequest

T = TypeVar("T")


def run(broker: str, act: Callable[[Admin], Awaitable[T]]) -> T:
    async def converse() -> T:
        async with Admin(broker) as admin:
            return await act(admin)

    return asyncio.run(converse())


async def eventually(ask: Callable[[], Awaitable[bool]]) -> None:
    """Kafka's brokers learn of a change a moment after its controller has made it."""
    async with asyncio.timeout(20):
        while not await ask():  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.05)


def test_a_password_is_set_changed_and_taken(broker: str) -> None:
    async def act(admin: Admin) -> None:
        credentials = admin.credentials
        assert await credentials.user("scram-user") is None
        await credentials.set_password("scram-user", "one", iterations=8_192)

        async def has(wanted: dict[str, int] | None) -> bool:
            found = await credentials.user("scram-user")
            return (found and found.iterations) == wanted

        await eventually(lambda: has({"SCRAM-SHA-256": 8_192, "SCRAM-SHA-512": 8_192}))
        assert "scram-user" in [user.name for user in await credentials.users()]
        await credentials.set_password("scram-user", "two", mechanisms=["SCRAM-SHA-512"])
        await eventually(lambda: has({"SCRAM-SHA-512": 4_096}))
        await credentials.delete("scram-user")
        await eventually(lambda: has(None))
        with pytest.raises(InvalidRequest) as refused:
            await credentials.delete("scram-user")
        assert refused.value.code is ErrorCode.UNKNOWN_RESOURCE

    run(broker, act)


@pytest.mark.parametrize(
    ("mechanisms", "iterations", "code"),
    [
        (["SCRAM-SHA-512"], 5, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (["PLAIN"], 4_096, ErrorCode.UNSUPPORTED_MECHANISM),
        ([], 4_096, ErrorCode.UNSUPPORTED_MECHANISM),
    ],
)
def test_a_password_that_cannot_be_is_refused(
    broker: str, mechanisms: list[str], iterations: int, code: ErrorCode
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        run(
            broker,
            lambda admin: admin.credentials.set_password(
                "weak", "x", mechanisms=mechanisms, iterations=iterations
            ),
        )
    assert refused.value.code is code


def test_limits_are_set_found_and_taken(broker: str) -> None:
    async def act(admin: Admin) -> None:
        quotas = admin.quotas
        both = {"user": "quota-user", "client-id": None}
        await quotas.alter({"user": "quota-user"}, {"producer_byte_rate": 1e6})
        await quotas.alter(both, {"consumer_byte_rate": 2e6, "producer_byte_rate": 3e6})

        async def are(wanted: list[dict[str, float]], *, strict: bool = False) -> bool:
            found = await quotas.find({"user": "quota-user"}, strict=strict)
            return sorted(len(quota.limits) for quota in found) == sorted(map(len, wanted)) and all(
                quota.limits in wanted for quota in found
            )

        one, two = (
            {"producer_byte_rate": 1e6},
            {"consumer_byte_rate": 2e6, "producer_byte_rate": 3e6},
        )
        await eventually(lambda: are([one, two]))
        await eventually(lambda: are([one], strict=True))
        await quotas.alter(both, {"consumer_byte_rate": None, "producer_byte_rate": None})
        await quotas.alter({"user": "quota-user"}, {"producer_byte_rate": None})
        await eventually(lambda: are([]))

    run(broker, act)


def test_a_limit_that_cannot_be_is_refused(broker: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        run(broker, lambda admin: admin.quotas.alter({"user": "quota-user"}, {"lights": 1.0}))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.subject == "user=quota-user"


def test_rules_where_nobody_is_asked_are_refused(broker: str) -> None:
    rule = Acl("User:alice", "read", "topic", "orders")
    for act in (
        lambda admin: admin.acls.create([rule]),
        lambda admin: admin.acls.delete([AclWish(principal="User:alice")]),
    ):
        with pytest.raises(InvalidRequest) as refused:
            run(broker, act)
        assert refused.value.code is ErrorCode.SECURITY_DISABLED
