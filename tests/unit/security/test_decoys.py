"""Names that nobody has look like users, at every node and after every restart."""

import base64
from typing import Any

import pytest
from tests.kit.clock import ManualClock

from mainstem.model import scram
from mainstem.placement.changes.security_commands import SecurityState
from mainstem.placement.state.security_table import SecurityTable
from mainstem.security.audit import Audit
from mainstem.security.authentication.lockout import Lockout, LockoutSettings
from mainstem.security.authentication.login_service import LoginService
from mainstem.security.authentication.passwords import Credentials, make_credentials
from mainstem.security.authentication.sasl import SendChallenge
from mainstem.security.authentication.tokens import DelegationToken

MECHANISM = "SCRAM-SHA-256"
NOBODY = [f"nobody-{number}" for number in range(40)]


def by_kafka(iterations: int, salt_bytes: int) -> Credentials:
    """What a Kafka client sets: it chooses salt and iterations itself."""
    made = scram.make_credential(
        MECHANISM, "pencil", salt=bytes(range(salt_bytes)), iterations=iterations
    )
    return Credentials(scram=(made,))


USERS = {
    "alice": make_credentials("pencil", [b"a" * scram.SALT_BYTES, b"b" * scram.SALT_BYTES]),
    "carol": by_kafka(8_192, 16),
    "erin": by_kafka(16_384, 100),
}
TOKEN = DelegationToken(
    id="token-1", owner="User:alice", requester="User:alice", renewers=(), issued_ms=0,
    expires_ms=2**60, max_ms=2**60,
)  # fmt: skip


def a_node(users: dict[str, Credentials] = USERS, secret: bytes | None = b"s" * 64) -> LoginService:
    """A process of a node with the cluster's catalogue."""
    state = SecurityState(users=users, token_secret=secret, delegation_tokens=(TOKEN,))
    clock = ManualClock()
    settings = LockoutSettings(failures_max=5, lock_ms=1_000)
    audit = Audit(clock, lambda _: None)
    return LoginService(SecurityTable(state), Lockout(settings, clock), audit, clock)


def told(node: LoginService, user: str, *, by_token: bool = False) -> dict[str, Any]:
    """What a node answers to a first message: salt and iterations."""
    extension = ",tokenauth=true" if by_token else ""
    exchange = node.begin(MECHANISM, "10.0.0.1")
    step = exchange._machine.step(f"n,,n={user},r=abc{extension}".encode())
    assert isinstance(step, SendChallenge)
    parts = dict(each.split("=", 1) for each in step.data.decode().split(","))
    return {"salt": base64.b64decode(parts["s"]), "iterations": int(parts["i"])}


@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_a_name_has_one_salt_at_every_node_and_after_every_restart(name: str) -> None:
    first, other, restarted = a_node(), a_node(), a_node()
    seen = [told(node, name) for node in (first, first, other, restarted)]
    assert seen == [seen[0]] * 4
    assert told(first, name + "2") != seen[0]


def test_the_salts_of_another_cluster_are_others() -> None:
    assert told(a_node(), "nobody") != told(a_node(secret=b"t" * 64), "nobody")


def test_what_is_made_up_has_iterations_and_lengths_that_users_have() -> None:
    node = a_node()
    shapes = {
        (len(found["salt"]), found["iterations"]) for found in (told(node, n) for n in NOBODY)
    }
    assert shapes == {(24, 4_096), (16, 8_192), (100, 16_384)}


def test_what_is_made_up_follows_users_that_change() -> None:
    node = a_node({"carol": USERS["carol"]})
    assert {told(node, name)["iterations"] for name in NOBODY} == {8_192}
    node._credentials.users["carol"] = USERS["alice"]  # type: ignore[index]
    node.credentials_changed()
    assert {told(node, name)["iterations"] for name in NOBODY} == {4_096}


@pytest.mark.parametrize("token", ["token-1", "token-of-nobody"])
def test_tokens_that_exist_cannot_be_told_from_others_by_their_salts(token: str) -> None:
    seen = [told(node, token, by_token=True) for node in (a_node(), a_node())]
    assert seen[0] == seen[1]
    assert (len(seen[0]["salt"]), seen[0]["iterations"]) == (24, 4_096)
