"""A node that asks for a login over HTTPS, and clients for it."""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from joserfc.jwk import KeySet
from tests.integration.security.issuer import AUDIENCE, ISSUER, KEY
from tests.integration.security.kit import ADMIN_PASSWORD, USER_PASSWORD, SecureNode

ADMIN = ("admin", ADMIN_PASSWORD)


def web_node(folder: Path, **more: object) -> SecureNode:
    """A node whose HTTP speaks TLS and asks for a login; ``more`` are settings, dots as ``__``."""
    keys = folder / "keys.json"
    keys.write_text(json.dumps(KeySet([KEY]).as_dict(private=False)))
    settings: dict[str, object] = {
        "http.tls": "true",
        "http.login": "true",
        "security.oauth_issuer": ISSUER,
        "security.oauth_audiences": AUDIENCE,
        "security.oauth_keys": keys,
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return SecureNode(folder, *flags)


def trusting(node: SecureNode, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    """TLS that trusts the node's authority, and shows a certificate if there is one."""
    context = ssl.create_default_context(cafile=str(node.certificates.ca))
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


@contextmanager
def browsing(
    node: SecureNode, certificate: tuple[Path, Path] | None = None
) -> Iterator[httpx.Client]:
    """A client that keeps its connection."""
    context = trusting(node, certificate)
    with httpx.Client(base_url=f"https://{node.http}", verify=context, timeout=20) as client:
        yield client


def known(user: str) -> tuple[str, str]:
    """Name and password of a user made by the kit."""
    return user, USER_PASSWORD


def bearer(text: str) -> dict[str, str]:
    """The header that shows a token."""
    return {"authorization": f"Bearer {text}"}


def audit(node: SecureNode) -> list[dict[str, str]]:
    """Every line of the audit."""
    text = (node.data_dir / "audit.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]
