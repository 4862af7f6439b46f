"""How the listeners of a node authenticate their clients, by its configuration."""

from typing import Final

from mainstem.broker.api.security import Security
from mainstem.node.config.listener_spec import is_loopback
from mainstem.node.config.settings import Config
from mainstem.protocols.listener_policy import ListenerPolicy
from mainstem.security.authentication.certificate_names import NameRules

# These send secrets in clear text: a listener that other machines reach needs TLS for them.
_IN_THE_CLEAR: Final = frozenset({"PLAIN", "OAUTHBEARER"})


def listener_policy(
    config: Config, security: Security, *, host: str, tls: bool, login: bool, sasl: bool
) -> ListenerPolicy:
    """The policy of a listener on ``host``.

    ``login``: clients have to log in; a required certificate is a login as well. ``sasl``: the
    configured mechanisms are offered, as far as they are safe there.
    """
    is_local = is_loopback(host)
    certificates = config.tls.client_certificates if tls else "none"
    needs_login = login or certificates == "required"
    mechanisms: tuple[str, ...] = ()
    if sasl:
        is_safe = tls or is_local or config.node.insecure
        mechanisms = tuple(
            name for name in config.security.mechanisms if is_safe or name not in _IN_THE_CLEAR
        )
    per_minute = config.security.connections_per_minute_max
    return ListenerPolicy(
        security=security,
        login=needs_login,
        mechanisms=mechanisms,
        names=None if certificates == "none" else NameRules(config.tls.name_rules),
        trusted=is_local and config.security.trust_loopback and not needs_login,
        login_timeout_ms=config.security.login_timeout_ms,
        connections_per_minute=None if is_local or not per_minute else per_minute,
    )
