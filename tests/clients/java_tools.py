"""Kafka's own command line tools, all in one process: a start of Java costs more than the tool."""

import base64
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.clients.client import java_command
from tests.clients.drivers.console import ToolFailed


class JavaTools:
    """Runs tools one after the other against one server."""

    def __init__(self, bootstrap: str, process: "subprocess.Popen[str]") -> None:
        self._bootstrap = bootstrap
        self._process = process

    def run(self, tool: str, *options: str) -> str:
        """What a tool prints; its failure is ours."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [tool, "--bootstrap-server", self._bootstrap, *options]
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        code, _, printed = self._process.stdout.readline().partition(" ")
        text = base64.b64decode(printed).decode()
        if code != "0":
            raise ToolFailed(f"{tool} {options}\n{text}")
        return text


@contextmanager
def java_tools(bootstrap: str) -> Iterator[JavaTools]:
    """Tools that are there until the end of the block."""
    with subprocess.Popen(
        java_command("Tools"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield JavaTools(bootstrap, process)
        finally:
            process.kill()
