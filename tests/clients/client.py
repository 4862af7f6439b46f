"""The real clients, how each is started, and what each cannot do by its own design.

A client is a command that runs one errand in a process (and process group) of its own, so that a
consumer can be killed as a crash would kill it.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.peers.kafka.peer import POM
from bench.peers.maven import ROOT, SHORT_LIVED, Unavailable, compiled_classpath
from tests.clients.errand import Errand

DRIVERS = Path(__file__).parent / "drivers"
ALL_CODECS = ("gzip", "snappy", "lz4", "zstd")
ERRAND_TIMEOUT_S = 300.0


class ErrandFailed(RuntimeError):
    """A client process ended with an error or not at all."""


@dataclass(frozen=True)
class Client:
    """One real client.

    ``lacks`` names what the client cannot express: ``admin`` (topics with settings),
    ``timestamps`` (a record's own time), ``null header`` (a header without a value),
    ``empty value`` (told apart from null), ``binary`` (bytes that are not text).
    """

    name: str
    command: Callable[[], list[str]]
    needs: tuple[str, ...] = ()
    codecs: tuple[str, ...] = ALL_CODECS
    lacks: frozenset[str] = frozenset()

    def run(self, errand: Errand, *, timeout_s: float = ERRAND_TIMEOUT_S) -> None:
        """Run an errand to its end."""
        with self.started(errand) as running:
            running.finish(timeout_s)

    @contextlib.contextmanager
    def started(self, errand: Errand) -> Iterator["Running"]:
        """Start an errand; what is left of its process group is killed at the end."""
        with tempfile.TemporaryDirectory(prefix="errand-") as scratch:
            path = Path(scratch) / "errand.json"
            errand.save(path)
            log_path = Path(scratch) / "log"
            with log_path.open("wb") as log:
                process = subprocess.Popen(
                    [*self.command(), str(path)],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            running = Running(f"{self.name} {errand.op}", process, log_path)
            try:
                yield running
            finally:
                running.kill()


class Running:
    """A client process at work."""

    def __init__(self, title: str, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._title = title
        self._process = process
        self._log_path = log_path

    def finish(self, timeout_s: float) -> None:
        """Wait for the end; anything but success is an error with what the client printed."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ErrandFailed(
                f"{self._title}: not done in {timeout_s:.0f} s\n{self.printed()}"
            ) from None
        if status:
            raise ErrandFailed(f"{self._title}: ended with status {status}\n{self.printed()}")

    def check_alive(self) -> None:
        """A member must not end by itself."""
        if (status := self._process.poll()) is not None:
            raise ErrandFailed(f"{self._title}: ended with status {status}\n{self.printed()}")

    def kill(self) -> None:
        """SIGKILL to the whole group: no goodbye to the server."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def printed(self) -> str:
        """The last lines that the client printed."""
        lines = self._log_path.read_text(errors="replace").splitlines()
        return "\n".join(lines[-30:])


def _python(module: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", f"tests.clients.drivers.{module}"]


def _kafkajs() -> list[str]:
    folder = DRIVERS / "kafkajs"
    installed = folder / "node_modules" / ".package-lock.json"
    lock = folder / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        command = ["npm", "ci", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"npm could not install KafkaJS: {done.stderr[-600:]}")
    return ["node", str(folder / "driver.js")]


def java_command(name: str) -> list[str]:
    """The command that runs a class of the Java drivers, compiled once."""
    path = compiled_classpath(DRIVERS / "java" / f"{name}.java", POM)
    return ["java", *SHORT_LIVED, "-cp", path, name]


CLIENTS = {
    client.name: client
    for client in (
        Client("confluent-kafka", _python("confluent")),
        Client("kafka-python", _python("kafka_python"), lacks=frozenset({"null header"})),
        Client("aiokafka", _python("aio_kafka")),
        Client(
            "kcat",
            _python("kcat"),
            needs=("kcat",),
            lacks=frozenset({"admin", "timestamps", "null header", "empty value", "binary"}),
        ),
        Client("kafkajs", _kafkajs, needs=("npm",), lacks=frozenset({"null header"})),
        Client("java", lambda: java_command("Driver"), needs=("java", "maven")),
        Client(
            "console",
            _python("console"),
            needs=("java", "maven"),
            lacks=frozenset({"timestamps", "binary"}),
        ),
    )
}
