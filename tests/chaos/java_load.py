"""The Java client as part of a load: an idempotent producer and a reader in one process.

Promises: those of ``load``; Java's clock and Python's are the same monotonic one.
"""

import subprocess
import tempfile
import threading
from types import TracebackType
from typing import Self

from tests.chaos.history import History, Outcome, Read, Sent
from tests.chaos.load import PARTITIONS
from tests.clients.client import java_command

FINISH_TIMEOUT_S = 120.0
JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
NS_PER_S = 1e9


class JavaLoader:
    """See the module's text; used as ``Loader`` is.

    Raises:
        bench.peers.maven.Unavailable: Java, or the jars, cannot be had here.
    """

    def __init__(self, bootstrap: str, topic: str, history: History, *, rate_per_s: int) -> None:
        self.name = f"{topic}-java"
        self.reached = [0] * PARTITIONS  # how many were acknowledged in each partition
        self._topic = topic
        self._history = history
        self._sent: dict[int, Sent] = {}
        self._fatal: list[str] = []
        java, *rest = java_command("Load")
        self._command = [java, *JVM, *rest, bootstrap, topic, str(PARTITIONS), str(rate_per_s)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the loader
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, name=self.name)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.abandon()

    def finish(self) -> None:
        """Send nothing more and wait until the fate of every record is known."""
        process = self._running()
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()
        status = process.wait(FINISH_TIMEOUT_S)
        self._thread.join()
        assert status == 0, f"{self.name} ended with {status}: {self._complaints()}"
        assert not self._fatal, f"{self.name}: {self._fatal[:3]}"

    def abandon(self) -> None:
        """End at once; what has no answer by now stays unknown."""
        process = self._running()
        process.kill()
        process.wait()
        self._thread.join()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
        self._errors.close()

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "started when the block was entered"
        return self._process

    def _complaints(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-2_000:]

    def _run(self) -> None:
        output = self._running().stdout
        assert output is not None
        for line in output:
            kind, *words = line.rstrip("\n").split(" ", 3)
            if kind == "s":
                self._began(int(words[0]), int(words[1]) / NS_PER_S)
            elif kind == "a":
                self._confirmed(int(words[0]), int(words[1]), int(words[2]) / NS_PER_S)
            elif kind == "e":
                self._sent[int(words[0])].ended = int(words[1]) / NS_PER_S
                self._fatal.append(line)
            elif kind == "r":
                stream = (self._topic, int(words[0]))
                read = Read(f"{self.name}-reader", 0, stream, int(words[1]), words[2])
                self._history.reads.append(read)

    def _began(self, number: int, started: float) -> None:
        stream = (self._topic, number % PARTITIONS)
        sent = Sent(self.name, stream, f"{self.name}-{number}", started)
        self._sent[number] = sent
        self._history.sent.append(sent)

    def _confirmed(self, number: int, offset: int, ended: float) -> None:
        sent = self._sent.pop(number)
        sent.ended = ended
        sent.outcome = Outcome.OK
        sent.offset = offset
        self.reached[sent.stream[1]] += 1
