"""What a listener asks of its clients, and what is known of one before it says a word.

Protocols whose clients log in step by step, by the name of a mechanism, share it.
"""

from typing import Any, Final

from msgspec import Struct

from mainstem.broker.api.security import Rights, Security
from mainstem.security.authentication.certificate_names import NameRules
from mainstem.security.authentication.tls_transport import certificate_identity
from mainstem.security.principals import Identity

EXTERNAL: Final = "EXTERNAL"


class IncomingConnection(Struct, frozen=True, kw_only=True):
    """A new connection: where from, by which certificate, and how it may log in."""

    address: str
    port: int
    asks: bool
    mechanisms: tuple[str, ...] = ()
    certificate: Identity | None = None


class ListenerPolicy(Struct, frozen=True, kw_only=True):
    """One listener's rules.

    ``login``: clients have to show who they are, by one of ``mechanisms`` or by a certificate to
    which ``names`` gives a user. ``trusted`` lets those who are not asked do everything: the
    listener belongs to the operator. ``unasked``: what is offered where nobody logs in.
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
        """Take a new connection in; ``tls`` is its TLS object, if there is one."""
        if not self.login:
            return IncomingConnection(
                address=address, port=port, asks=False, mechanisms=self.unasked
            )
        certificate = None if self.names is None else certificate_identity(tls, self.names)
        offered = self.mechanisms if certificate is None else (EXTERNAL, *self.mechanisms)
        return IncomingConnection(
            address=address, port=port, asks=True, mechanisms=offered, certificate=certificate
        )

    def rights(self, identity: Identity, arrival: IncomingConnection) -> Rights:
        """What a client may do once it is in."""
        trusted = self.trusted and not arrival.asks
        return self.security.rights(identity, arrival.address, trusted=trusted)
