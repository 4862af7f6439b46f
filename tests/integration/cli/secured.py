"""A node that asks who is there, and commands run as somebody."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.integration.security.kit import ADMIN_PASSWORD, SecureNode

from mainstem.cli.errors import ExitCode
from mainstem.cli.main import main

ADMIN = {"MAINSTEM_USER": "admin", "MAINSTEM_PASSWORD": ADMIN_PASSWORD}


def somebody(name: str, password: str) -> dict[str, str]:
    """The variables by which a user logs in."""
    return {"MAINSTEM_USER": name, "MAINSTEM_PASSWORD": password}


class Shell:
    """Commands against a node, in this process."""

    def __init__(
        self,
        node: SecureNode,
        home: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.node = node
        self.home = home
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(
        self,
        *words: str,
        login: Mapping[str, str] = ADMIN,
        ends_with: ExitCode = ExitCode.OK,
        listener: str = "SASL_SSL",
    ) -> str:
        """What the command printed, or the error it ended with."""
        variables = {
            "HOME": str(self.home),
            "MAINSTEM_BOOTSTRAP": self.node.address(listener),
            "MAINSTEM_HTTP": f"http://{self.node.http}",
            **({"MAINSTEM_CA_FILE": str(self.node.certificates.ca)} if "SSL" in listener else {}),
            **login,
        }
        with self._monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main(words)
        captured = self._capsys.readouterr()
        assert (ended.value.code or 0) == ends_with, captured.err
        return captured.out if ends_with == ExitCode.OK else captured.err

    def make_user(self, name: str, password: str = "battery staple") -> dict[str, str]:
        """A new user; the variables by which he logs in."""
        file = self.home / f"{name}.password"
        file.write_text(f"{password}\n")
        self("user", "create", name, "--new-password-file", str(file))
        return somebody(name, password)
