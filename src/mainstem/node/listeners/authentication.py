"""How the listeners of a node authenticate their clients, by its configuration."""

from typing import Final, Protocol

from mainstem.broker.services.node_broker import NodeBroker
from mainstem.node.config.listener_spec import is_loopback
from mainstem.node.config.settings import Config
from mainstem.protocols.listener_policy import ListenerPolicy
from mainstem.security.authentication.certificate_names import NameRules

# These send secrets in clear text: a listener that other machines reach needs TLS for them.
_IN_THE_CLEAR: Final = frozenset({"PLAIN", "OAUTHBEARER"})


class Section(Protocol):
    """The settings of one listener."""

    @property
    def host(self) -> str:
        """Where it listens."""
        ...

    @property
    def tls(self) -> bool:
        """Whether it uses TLS."""
        ...

    @property
    def login(self) -> bool:
        """Whether clients have to log in."""
        ...


def entrance(config: Config, broker: NodeBroker, section: Section) -> ListenerPolicy:
    """The rules of one listener."""
    own = is_loopback(section.host)
    safe = section.tls or own or config.node.insecure
    certificates = config.tls.client_certificates if section.tls else "none"
    known = section.login or certificates == "required"
    mechanisms: tuple[str, ...] = ()
    if section.login:
        mechanisms = tuple(m for m in config.security.mechanisms if safe or m not in _IN_THE_CLEAR)
    per_minute = config.security.connections_per_minute_max
    return ListenerPolicy(
        security=broker.security,
        login=known,
        mechanisms=mechanisms,
        names=None if certificates == "none" else NameRules(config.tls.name_rules),
        trusted=own and config.security.trust_loopback and not known,
        login_timeout_ms=config.security.login_timeout_ms,
        connections_per_minute=None if own or not per_minute else per_minute,
    )
