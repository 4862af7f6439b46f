"""Who asks a node for salts does not learn which users there are, not even over restarts."""

import base64
from pathlib import Path

from tests.integration.security.kit import Client, SecureNode


def salt_of(node: SecureNode, user: str) -> tuple[bytes, int]:
    with Client(node.address("SASL_PLAINTEXT")) as client:
        answer = client.try_login("SCRAM-SHA-256", f"n,,n={user},r=abc".encode())
        parts = dict(each.split("=", 1) for each in bytes(answer.auth_bytes).decode().split(","))
        return base64.b64decode(parts["s"]), int(parts["i"])


def test_made_up_names_keep_their_salts_over_restarts_as_users_do(tmp_path: Path) -> None:
    names = ("admin", "nobody", "somebody")
    with SecureNode(tmp_path) as node:
        before = {name: salt_of(node, name) for name in names}
        assert {(len(salt), iterations) for salt, iterations in before.values()} == {(24, 4_096)}
        assert node.stop() == 0
        node.start()
        assert {name: salt_of(node, name) for name in names} == before
