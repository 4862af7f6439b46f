"""Passwords, quotas and rules are administered alike on a node and on Apache Kafka."""

from collections.abc import AsyncIterator

import pytest
from tests.kit.waiting import eventually

from mainstem.client.admin import Admin
from mainstem.client.administration.acls import Acl, AclRuleFilter
from mainstem.model.errors import ErrorCode, InvalidRequest


@pytest.fixture
async def admin(broker: str) -> AsyncIterator[Admin]:
    async with Admin(broker) as admin:
        yield admin


async def test_a_password_is_set_changed_and_taken(admin: Admin) -> None:
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


@pytest.mark.parametrize(
    ("mechanisms", "iterations", "code"),
    [
        (["SCRAM-SHA-512"], 5, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (["PLAIN"], 4_096, ErrorCode.UNSUPPORTED_MECHANISM),
        ([], 4_096, ErrorCode.UNSUPPORTED_MECHANISM),
    ],
)
async def test_a_password_that_cannot_be_is_refused(
    admin: Admin, mechanisms: list[str], iterations: int, code: ErrorCode
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await admin.credentials.set_password(
            "weak", "x", mechanisms=mechanisms, iterations=iterations
        )
    assert refused.value.code is code


async def test_limits_are_set_found_and_taken(admin: Admin) -> None:
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


async def test_a_limit_that_cannot_be_is_refused(admin: Admin) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await admin.quotas.alter({"user": "quota-user"}, {"lights": 1.0})
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.subject == "user=quota-user"


async def test_rules_where_nobody_is_asked_are_refused(admin: Admin) -> None:
    rule = Acl("User:alice", "read", "topic", "orders")
    for work in (
        admin.acls.create([rule]),
        admin.acls.delete([AclRuleFilter(principal="User:alice")]),
    ):
        with pytest.raises(InvalidRequest) as refused:
            await work
        assert refused.value.code is ErrorCode.SECURITY_DISABLED
