"""Servers that ask who is there: logins, access rules, quotas and TLS switched on.

Both products get the same: a listener without login for the set-up, one where the load logs in with
PLAIN, and one with TLS. The user of the load has its rights by a rule on a prefix, among
rules of others, and quotas that it never reaches.
"""

import asyncio
from pathlib import Path

import trustme
from bench.peers.kafka import peer
from bench.peers.kafka.peer import ApacheKafka
from cryptography.hazmat.primitives import serialization

from mainstem.client.admin import Admin
from mainstem.client.administration.acls import Acl
from mainstem.testing.local_node import LocalNode
from mainstem.testing.ports import free_ports
from mainstem.testing.server_process import READY_TIMEOUT_S

USER, PASSWORD = "load", "only for loopback"
TOPICS = "bench-"
OTHERS = 50
# Far above what one machine moves.
BYTES_PER_S = 100e9
LOGIN, TLS = "SASL_PLAINTEXT", "SSL"


class Certificates:
    """An authority of its own and a certificate for 127.0.0.1, as files."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1", "localhost")
        self.ca, self.certificate = folder / "ca.pem", folder / "server.pem"
        self.key, self.both = folder / "server.key", folder / "server-both.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        # Java reads the key in the form of PKCS #8 only, and wants both in one file.
        key = serialization.load_pem_private_key(
            issued.private_key_pem.bytes(), None
        ).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        self.certificate.write_bytes(chain)
        self.key.write_bytes(key)
        self.both.write_bytes(key + chain)


class GuardedNode(LocalNode):
    """A node with the three listeners."""

    def __init__(self, certificates: Certificates) -> None:
        listeners = ",".join(f"{kind}://127.0.0.1:0" for kind in ("PLAINTEXT", LOGIN, TLS))
        settings = {
            "kafka.listeners": listeners,
            "tls.certificate_file": certificates.certificate,
            "tls.key_file": certificates.key,
        }
        flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        super().__init__(arguments=flags)
        self.ca = certificates.ca

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start and let the load's user in."""
        super().start(timeout_s=timeout_s)
        asyncio.run(self._make_user())
        asyncio.run(_let_in(self.kafka, requests={"request_rate": 1e9}))

    async def _make_user(self) -> None:
        async with Admin(self.kafka) as admin:
            await admin.credentials.set_password(USER, PASSWORD)

    def address(self, kind: str) -> str:
        """Where the listener of that kind is."""
        found = self.announced["kafka_listeners"]
        assert isinstance(found, list)
        [address] = [each for each in found if each.startswith(f"{kind}://")]
        return str(address).partition("://")[2]


class GuardedKafka(ApacheKafka):
    """Apache Kafka with the three listeners, its own authoriser and credentials."""

    def __init__(self, certificates: Certificates) -> None:
        super().__init__()
        login, tls = free_ports(2)
        self.ca = certificates.ca
        self._addresses = {LOGIN: f"127.0.0.1:{login}", TLS: f"127.0.0.1:{tls}"}
        offered = f"PLAINTEXT://{self.kafka},{LOGIN}://127.0.0.1:{login},{TLS}://127.0.0.1:{tls}"
        controller = f"CONTROLLER://127.0.0.1:{self._controller_port}"
        plain = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        self.settings |= {
            "listeners": f"{offered},{controller}",
            "advertised.listeners": f"{offered},{controller}",
            "sasl.enabled.mechanisms": "PLAIN",
            plain: f'{module} user_{USER}="{PASSWORD}";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # Whoever comes through a listener without login: the set-up and the broker itself.
            "super.users": "User:ANONYMOUS",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.both),
        }

    def start(self, *, timeout_s: float = peer.READY_TIMEOUT_S) -> None:
        """Start and let the load's user in."""
        super().start(timeout_s=timeout_s)
        asyncio.run(_let_in(self.kafka, requests={"request_percentage": 1e6}))

    def address(self, kind: str) -> str:
        """Where the listener of that kind is."""
        return self._addresses[kind]


async def _let_in(address: str, *, requests: dict[str, float]) -> None:
    me = f"User:{USER}"
    others = [Acl(f"User:other-{each}", "all", "topic", f"other-{each}") for each in range(OTHERS)]
    mine = [Acl(me, "all", "topic", TOPICS, "prefixed"), Acl(me, "read", "group", "*")]
    limits = {"producer_byte_rate": BYTES_PER_S, "consumer_byte_rate": BYTES_PER_S}
    async with Admin(address) as admin:
        await admin.acls.create([*others, *mine])
        await admin.quotas.alter({"user": USER}, limits | requests)
