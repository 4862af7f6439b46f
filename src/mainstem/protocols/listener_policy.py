"""Authentication policy of a listener, and what is known of a connection before its first frame.

Every protocol uses the same policy; what is particular to one is in a class that holds it
(``KafkaEndpoint``, ``MqttAuthenticator``, ``HttpAuthenticator``).
"""

from typing import Any, Final

from msgspec import Struct

from mainstem.broker.api.security import Rights, Security
from mainstem.security.authentication.certificate_names import NameRules
from mainstem.security.authentication.tls_transport import certificate_identity
from mainstem.security.principals import NOBODY, Identity

EXTERNAL: Final = "EXTERNAL"


class IncomingConnection(Struct, frozen=True, kw_only=True):
    """A new connection: its address, its certificate, and the SASL mechanisms it may use."""

    address: str
    port: int
    needs_login: bool
    mechanisms: tuple[str, ...] = ()
    certificate: Identity | None = None


class ListenerPolicy(Struct, frozen=True, kw_only=True):
    """Authentication policy of one listener.

    ``login``: clients must authenticate, by one of ``mechanisms`` or by a certificate that
    ``names`` maps to a user. ``trusted``: clients without a login have all rights, on a
    loopback listener that trusts its machine. ``without_login``: mechanisms offered where no login
    is required.
    """

    security: Security
    login: bool = False
    mechanisms: tuple[str, ...] = ()
    without_login: tuple[str, ...] = ()
    names: NameRules | None = None
    trusted: bool = False
    login_timeout_ms: int = 10_000
    connections_per_minute: int | None = None

    def refuses(self, address: str) -> bool:
        """Whether an address connects too often."""
        return self.security.quotas.connection_refused(address, self.connections_per_minute)

    def incoming(self, address: str, port: int, tls: Any) -> IncomingConnection:
        """Describe a new connection; ``tls`` is its TLS object, if any."""
        if not self.login:
            return IncomingConnection(
                address=address, port=port, needs_login=False, mechanisms=self.without_login
            )
        certificate = self.certificate(tls)
        offered = self.mechanisms if certificate is None else (EXTERNAL, *self.mechanisms)
        return IncomingConnection(
            address=address,
            port=port,
            needs_login=True,
            mechanisms=offered,
            certificate=certificate,
        )

    def certificate(self, tls: Any) -> Identity | None:
        """The user that the client's certificate names, if any."""
        return None if self.names is None else certificate_identity(tls, self.names)

    def trusts(self, identity: Identity) -> bool:
        """Whether a client has all rights because it needs no login here."""
        return self.trusted and identity is NOBODY

    def rights(self, identity: Identity, address: str) -> Rights:
        """The rights of a client; one without a login is ``NOBODY``."""
        return self.security.rights(identity, address, trusted=self.trusts(identity))
