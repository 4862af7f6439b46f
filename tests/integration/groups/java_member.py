"""A Java member of a group in a process of its own."""

import subprocess
import threading
from abc import ABC, abstractmethod
from pathlib import Path

from tests.clients.client import java_command

PATIENCE_S = 60.0


class JavaMember(ABC):
    """Runs until its input is closed; what it says, line by line, goes to ``heard``."""

    program: str

    def __init__(self, log: Path, *arguments: str) -> None:
        self.failures: list[str] = []
        self._log = log.open("w")
        self.process = subprocess.Popen(
            [*java_command(self.program), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @abstractmethod
    def heard(self, word: str, rest: str) -> None:
        """One line: its first word, and what follows."""

    def stop(self) -> None:
        """Let it say goodbye."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self._end()

    def kill(self) -> None:
        """SIGKILL: no goodbye."""
        self.process.kill()
        self.process.wait()
        self._end()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "failed":
                self.failures.append(rest)
            else:
                self.heard(word, rest)

    def _end(self) -> None:
        self._listener.join(PATIENCE_S)
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self._log.close()
