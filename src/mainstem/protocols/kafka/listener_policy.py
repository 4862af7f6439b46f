"""Authentication policy of a Kafka listener, and the initial identity of its clients."""

from typing import Any

from msgspec import Struct

from mainstem.broker.api.security import Security
from mainstem.model.clock import Clock
from mainstem.protocols.kafka.call import Peer
from mainstem.protocols.kafka.login_service import Login
from mainstem.security.authentication.certificate_names import NameRules
from mainstem.security.authentication.tls_transport import certificate_identity
from mainstem.security.principals import NOBODY


class KafkaListenerPolicy(Struct, frozen=True, kw_only=True):
    """Authentication policy of one listener.

    Without ``mechanisms`` there is no SASL login. ``names`` maps client certificates to users;
    ``trusted``: clients without a login have all rights, on a loopback listener.
    """

    security: Security
    clock: Clock
    mechanisms: tuple[str, ...] = ()
    names: NameRules | None = None
    needs_certificate: bool = False
    trusted: bool = False
    reauthenticate_ms: int = 0
    login_timeout_ms: int = 30_000
    advertised: tuple[str, int] | None = None
    kind: str = "PLAINTEXT"
    connections_per_minute: int | None = None

    def refuses(self, address: str) -> bool:
        """Whether an address connects too often."""
        return self.security.quotas.connection_refused(address, self.connections_per_minute)

    def receive(self, peer: Peer, tls: Any) -> None:
        """Set up a new connection; ``tls`` is its TLS object, if any."""
        peer.quotas = self.security.quotas
        peer.advertised = self.advertised
        peer.listener = self.kind
        identity = None
        if self.names is not None and not self.mechanisms:
            identity = certificate_identity(tls, self.names)
        if self.mechanisms or (identity is None and self.needs_certificate):
            # A required certificate that no rule maps to a user: nothing is served without a login.
            peer.login = Login(
                self.security,
                self.clock,
                self.mechanisms,
                address=peer.address,
                reauthenticate_ms=self.reauthenticate_ms,
            )
            return
        if identity is not None:
            self.security.logins.succeeded(identity, peer.address)
        known = identity or NOBODY
        trusted = self.trusted and identity is None
        peer.is_now(known, self.security.rights(known, peer.address, trusted=trusted))
