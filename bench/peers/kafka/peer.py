"""Apache Kafka as a peer: one combined broker and controller in its own process.

The configuration is the committed ``server.properties`` (what Apache ships), the JVM flags are
those of Apache's start script. Promises: the whole process group is gone when the block is left;
a restart serves the same data under the same address.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.peers.maven import classpath

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
# As bin/kafka-server-start.sh and bin/kafka-run-class.sh set them.
HEAP = ("-Xmx1G", "-Xms1G")
JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0


class ApacheKafka:
    """Apache Kafka under the same loads as a node."""

    def __init__(self, data_dir: Path | None = None) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="kafka-peer-"))
        self.data_dir = data_dir if data_dir is not None else self._scratch / "data"
        self.log_path = self._scratch / "server.log"
        self._broker_port, self._controller_port = _free_ports(2)
        self.kafka = f"127.0.0.1:{self._broker_port}"
        self.ready_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self._process is not None, "not running"
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How the last process ended; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Format the storage on the first start, then start the broker and wait for it."""
        properties = self._write_properties()
        if not (self.data_dir / "meta.properties").exists():
            self._format(properties)
        started = time.monotonic()
        log4j = f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"
        command = ["java", *HEAP, *JVM, log4j, "-cp", classpath(POM), "kafka.Kafka"]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        while not _answers(self._broker_port):
            if self._process.poll() is not None or time.monotonic() - started > timeout_s:
                self.kill9()
                raise RuntimeError(f"Apache Kafka did not start\n{self.log_tail()}")
            time.sleep(0.05)
        self.ready_s = time.monotonic() - started

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Ask the broker to stop as an operator would."""
        assert self._process is not None, "never started"
        self._process.terminate()
        return self._process.wait(timeout_s)

    def kill9(self) -> None:
        """End the whole process group at once."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def restart(self) -> None:
        """Start again on the same data and the same address, stopping first if it runs."""
        if self._process is not None and self._process.poll() is None:
            self.stop()
        self.start()

    def close(self) -> None:
        """Kill what still runs and remove the temporary folder."""
        self.kill9()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def log_tail(self) -> str:
        """The last lines the broker printed."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-40:])

    def _write_properties(self) -> Path:
        text = (HERE / "server.properties").read_text()
        filled = {
            "@broker_port@": str(self._broker_port),
            "@controller_port@": str(self._controller_port),
            "@data_dir@": str(self.data_dir),
        }
        for mark, value in filled.items():
            text = text.replace(mark, value)
        path = self._scratch / "server.properties"
        path.write_text(text)
        return path

    def _format(self, properties: Path) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        command = ["java", "-cp", classpath(POM), "kafka.tools.StorageTool", "format"]
        # With an equals sign, since an id may begin with a dash.
        command += [f"--cluster-id={cluster_id}", "--standalone", "--config", str(properties)]
        subprocess.run(command, check=True, capture_output=True, timeout=READY_TIMEOUT_S)


def _answers(port: int) -> bool:
    """Whether the broker answers ApiVersions, not merely accepts the connection."""
    # ApiVersions v0, correlation id 1, client id of length 0.
    request = bytes.fromhex("0000000a 0012 0000 00000001 0000")
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(request)
            return len(connection.recv(4)) == 4
    except OSError:
        return False


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
