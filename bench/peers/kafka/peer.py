"""Apache Kafka as a peer: one combined broker and controller in its own process.

The configuration is the committed ``server.properties`` (what Apache ships), the JVM flags are
those of Apache's start script. Promises: those of ``server_process``; a restart serves the same
data under the same address.
"""

import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.maven import SHORT_LIVED, classpath

from mainstem.testing.ports import free_ports
from mainstem.testing.server_process import ServerProcess

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
POLL_S = 0.05


class ApacheKafka(ServerProcess):
    """Apache Kafka under the same loads as a node.

    Args:
        data_dir: where it keeps its data; a temporary folder, removed at the end, if None.
        settings: properties on top of the committed ones, which they replace.
        jvm: flags of its process; tests, which measure nothing, give others.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (*HEAP, *JVM),
    ) -> None:
        super().__init__("kafka-peer-", data_dir)
        self.settings = dict(settings or {})
        self._jvm = tuple(jvm)
        self._broker_port, self._controller_port = free_ports(2)
        self.kafka = f"127.0.0.1:{self._broker_port}"

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Format the storage on the first start, then start the broker and wait for it."""
        properties = self._write_properties()
        if not (self.data_dir / "meta.properties").exists():
            self._format(properties)
        log4j = f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"
        command = ["java", *self._jvm, log4j, "-cp", classpath(POM), "kafka.Kafka"]
        self._launch([*command, str(properties)], {})
        self._await(lambda: _answers(self._broker_port) or None, timeout_s=timeout_s, poll_s=POLL_S)

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Ask the broker to stop as an operator would; a Java server takes its time."""
        return super().stop(timeout_s=timeout_s)

    def _write_properties(self) -> Path:
        text = (HERE / "server.properties").read_text()
        filled = {
            "@broker_port@": str(self._broker_port),
            "@controller_port@": str(self._controller_port),
            "@data_dir@": str(self.data_dir),
        }
        for mark, value in filled.items():
            text = text.replace(mark, value)
        # Of two lines with one name Java takes the last.
        text += "".join(f"{name}={value}\n" for name, value in self.settings.items())
        path = self._scratch / "server.properties"
        path.write_text(text)
        return path

    def _format(self, properties: Path) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        command = ["java", *SHORT_LIVED, "-cp", classpath(POM)]
        command += ["kafka.tools.StorageTool", "format"]
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
