"""A node whose catalogue is rebuilt knows no users and no rules: it lets nobody in by mistake."""

from pathlib import Path

import pytest
from tests.integration.cli.secured import ADMIN, Shell
from tests.integration.security.kit import SecureNode

from mainstem.cli.errors import ExitCode


def test_a_rebuilt_node_fails_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with SecureNode(tmp_path, "--set", "http.login=true") as node:
        shell = Shell(node, tmp_path, capsys, monkeypatch)
        login = shell.make_user("alice")
        shell("role", "grant", "producer", "alice")
        shell("acl", "create", "--allow", "alice", "-O", "read", "--topic", "kept")
        shell("acl", "create", "--deny", "User:*", "-O", "delete", "--topic", "kept")
        shell("quota", "set", "user=alice", "-l", "request_rate=1000")
        shell("token", "create", "lost", "--file", str(tmp_path / "token"), login=login)
        shell("produce", "kept", "record", login=login)
        node.stop()
        node.arguments = (*node.arguments, "--rebuild-catalogue")
        node.start()

        assert shell("consume", "kept") == "record\n"
        for words in (["produce", "kept", "x"], ["consume", "kept"], ["topic", "list"]):
            shell(*words, login=login, ends_with=ExitCode.NOT_ALLOWED)
        by_token = {"MAINSTEM_USER": "", "MAINSTEM_TOKEN_FILE": str(tmp_path / "token")}
        shell("topic", "list", login=by_token, ends_with=ExitCode.NOT_ALLOWED)
        assert shell("user", "list", "-o", "json", login=ADMIN).count("name") == 1
        assert shell("acl", "list", "-o", "json") == "[]\n"
        assert shell("quota", "list", "-o", "json") == "[]\n"
        # Whoever comes again with the same name begins without rights.
        again = shell.make_user("alice")
        shell("produce", "kept", "x", login=again, ends_with=ExitCode.NOT_ALLOWED)
