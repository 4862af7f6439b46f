"""Secrets and certificates between nodes, taken up from their files."""

import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from mainstem.cli.development.certificates import Order, Pair, issue, make_authority
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.node.clustering.peer_trust_driver import PeerTrustDriver, peer_tls
from mainstem.node.config.cluster import ClusterSection
from mainstem.node.config.security import TlsSection
from mainstem.node.config.settings import Config

NOW = datetime.datetime.now(datetime.UTC)


def test_new_secrets_are_told_and_files_that_cannot_be_used_change_nothing() -> None:
    found: list[tuple[bytes, ...] | InvalidRequest] = [
        (b"old",),
        InvalidRequest(ErrorCode.INVALID_CONFIG, "too short"),
        (b"old", b"new"),
    ]

    def read() -> tuple[bytes, ...]:
        next_one = found.pop(0)
        if isinstance(next_one, InvalidRequest):
            raise next_one
        return next_one

    told: list[tuple[bytes, ...]] = []
    trust = PeerTrustDriver(read, (b"old",), None)
    trust.on_secrets.append(told.append)

    trust.reload_if_changed()
    trust.reload_if_changed()
    assert (told, trust.secrets) == ([], (b"old",))

    trust.reload_if_changed()
    assert told == [(b"old", b"new")]


def test_tls_between_nodes_needs_certificate_key_and_authorities(tmp_path: Path) -> None:
    authority, node = Pair.named(tmp_path, "ca"), Pair.named(tmp_path, "node")
    make_authority(authority, 30, NOW)
    issue(authority, Order("node", ["127.0.0.1"], 30), node, NOW)
    files = TlsSection(certificate_file=str(node.certificate), key_file=str(node.key))
    plain = Config(tls=files)
    asked = replace(plain, cluster=ClusterSection(tls=True))

    assert peer_tls(plain) is None
    with pytest.raises(InvalidRequest, match="authorities"):
        peer_tls(asked)
    named = ClusterSection(tls=True, tls_ca_file=str(authority.certificate))
    assert peer_tls(replace(asked, cluster=named)) is not None
    missing = ClusterSection(tls=True, tls_ca_file=str(tmp_path / "nothing.pem"))
    with pytest.raises(InvalidRequest, match="TLS files"):
        peer_tls(replace(asked, cluster=missing))
