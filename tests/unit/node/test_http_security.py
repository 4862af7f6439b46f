"""What the configuration makes of the HTTP listener: who is asked, who is trusted."""

from typing import TYPE_CHECKING, cast

import pytest

from mainstem.model.errors import InvalidRequest
from mainstem.node.config.loader import load
from mainstem.node.listeners.rest import http_authenticator
from mainstem.node.security import is_enforced, is_http_authentication_required

if TYPE_CHECKING:
    from mainstem.broker.api.security import Security

OPEN = {"http.host": "10.1.2.3"}
TLS = {
    "http.tls": True,
    "tls.certificate_file": "node.pem",
    "tls.key_file": "node.key",
    "tls.client_ca_file": "ca.pem",
}
NO_SECURITY = cast("Security", None)  # only settings are looked at here


def per_minute(flags: dict[str, object]) -> int | None:
    policy = http_authenticator(load(flags=flags).config, NO_SECURITY).policy
    return policy.connections_per_minute


def test_secrets_do_not_travel_in_the_clear_to_other_machines() -> None:
    with pytest.raises(InvalidRequest, match="in clear text") as caught:
        load(flags={**OPEN, "http.login": True})
    assert caught.value.subject == "http.tls"
    assert load(flags={**OPEN, **TLS, "http.login": True}).config.http.login
    assert load(flags={**OPEN, "http.login": True, "node.insecure": True}).config.http.login
    assert load(flags={"http.login": True}).config.http.login


def test_a_required_certificate_is_a_login_and_a_requested_one_is_not() -> None:
    required = load(flags={**OPEN, **TLS, "tls.client_certificates": "required"}).config
    assert is_http_authentication_required(required)
    assert is_enforced(required)
    with pytest.raises(InvalidRequest, match="without a login"):
        load(flags={**OPEN, **TLS, "tls.client_certificates": "requested"})
    with pytest.raises(InvalidRequest, match="without a login"):
        load(flags={**OPEN, "tls.client_certificates": "required"})  # but no TLS on HTTP


@pytest.mark.parametrize(
    ("flags", "login", "trusted", "named"),
    [
        ({}, False, True, False),
        ({"security.trust_loopback": False}, False, False, False),
        ({"http.login": True}, True, False, False),
        ({**TLS, "tls.client_certificates": "requested"}, False, True, True),
        ({**TLS, "tls.client_certificates": "required"}, True, False, True),
        ({"tls.client_certificates": "required"}, False, True, False),
        ({**OPEN, "node.insecure": True}, False, False, False),
        ({**OPEN, **TLS, "http.login": True}, True, False, False),
    ],
)
def test_who_is_asked_and_who_is_trusted(
    flags: dict[str, object], login: bool, trusted: bool, named: bool
) -> None:
    made = http_authenticator(load(flags=flags).config, NO_SECURITY).policy
    assert (made.login, made.trusted, made.names is not None) == (login, trusted, named)


def test_only_listeners_that_others_reach_limit_new_connections() -> None:
    flags = {**OPEN, **TLS, "http.login": True}
    assert per_minute({}) is None
    assert per_minute(flags) == 600
    flags |= {"security.connections_per_minute_max": 0}
    assert per_minute(flags) is None
