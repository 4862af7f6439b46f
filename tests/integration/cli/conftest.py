"""Shared by the commands that need a node which asks who is there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli.secured import Shell
from tests.integration.security.kit import SecureNode


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    """One listener of each kind, and HTTP with logins; tests use users of their own."""
    with SecureNode(tmp_path_factory.mktemp("guarded"), "--set", "http.login=true") as node:
        yield node


@pytest.fixture
def shell(
    guarded: SecureNode,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Shell:
    """Commands as the administrator, unless told otherwise."""
    return Shell(guarded, tmp_path, capsys, monkeypatch)
