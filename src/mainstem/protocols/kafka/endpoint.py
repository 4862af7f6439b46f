"""The end point of a Kafka listener: its name, advertised address, and policy for logins."""

from typing import Any

from msgspec import Struct

from mainstem.model.clock import Clock
from mainstem.protocols.kafka.call import Peer
from mainstem.protocols.kafka.login_service import KafkaLogin
from mainstem.protocols.listener_policy import ListenerPolicy
from mainstem.security.principals import NOBODY


class KafkaEndpoint(Struct, frozen=True, kw_only=True):
    """Sets up the connections of one Kafka listener.

    With ``policy.mechanisms`` every client has to log in by SASL, and certificates name no user.
    ``needs_certificate``: without them, a client needs a certificate that names a user.
    """

    policy: ListenerPolicy
    clock: Clock
    needs_certificate: bool = False
    reauthenticate_ms: int = 0
    advertised: tuple[str, int] | None = None
    kind: str = "PLAINTEXT"

    def receive(self, peer: Peer, tls: Any) -> None:
        """Set up a new connection; ``tls`` is its TLS object, if any."""
        policy = self.policy
        peer.quotas = policy.security.quotas
        peer.advertised = self.advertised
        peer.listener = self.kind
        identity = None if policy.mechanisms else policy.certificate(tls)
        if policy.mechanisms or (identity is None and self.needs_certificate):
            # A required certificate that no rule maps to a user: nothing is served without a login.
            peer.login = KafkaLogin(
                policy.security,
                self.clock,
                policy.mechanisms,
                address=peer.address,
                reauthenticate_ms=self.reauthenticate_ms,
            )
            return
        if identity is not None:
            policy.security.logins.succeeded(identity, peer.address)
        known = identity or NOBODY
        peer.authenticated(known, policy.rights(known, peer.address))
