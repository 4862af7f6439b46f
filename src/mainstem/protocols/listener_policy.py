"""Authentication policy of a listener, and what is known of a connection before its first frame.

Shared by the protocols with SASL logins (AMQP, native).
"""

from typing import Any, Final

from msgspec import Struct

from mainstem.broker.api.security import Rights, Security
from mainstem.security.authentication.certificate_names import NameRules
from mainstem.security.authentication.tls_transport import certificate_identity
from mainstem.security.principals import Identity

EXTERNAL: Final = "EXTERNAL"


class IncomingConnection(Struct, frozen=True, kw_only=True):
    """A new connection: its address, its certificate, and the SASL mechanisms it may use."""

    address: str
    port: int
    asks: bool
    mechanisms: tuple[str, ...] = ()
    certificate: Identity | None = None


class ListenerPolicy(Struct, frozen=True, kw_only=True):
    """Authentication policy of one listener.

    ``login``: clients must authenticate, by one of ``mechanisms`` or by a certificate that
    ``names`` maps to a user. ``trusted``: clients without a login have all rights, on a
    loopback listener that trusts its machine. ``unasked``: mechanisms offered without ``login``.
    """

    security: Security
    login: bool = False
    mechanisms: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()
    names: NameRules | None = None
    trusted: bool = False
    login_timeout_ms: int = 10_000
    connections_per_minute: int | None = None

    def refuses(self, address: str) -> bool:
        """Whether an address connects too often."""
        return self.security.quotas.connection_refused(address, self.connections_per_minute)

    def arrival(self, address: str, port: int, tls: Any) -> IncomingConnection:
        """Describe a new connection; ``tls`` is its TLS object, if any."""
        if not self.login:
            return IncomingConnection(
                address=address, port=port, asks=False, mechanisms=self.unasked
            )
        certificate = None if self.names is None else certificate_identity(tls, self.names)
        offered = self.mechanisms if certificate is None else (EXTERNAL, *self.mechanisms)
        return IncomingConnection(
            address=address, port=port, asks=True, mechanisms=offered, certificate=certificate
        )

    def rights(self, identity: Identity, incoming: IncomingConnection) -> Rights:
        """The rights of a client after login."""
        trusted = self.trusted and not incoming.asks
        return self.security.rights(identity, incoming.address, trusted=trusted)
