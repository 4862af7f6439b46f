"""A cluster of real nodes, each in its own process, that can be killed individually.

Guarantees: those of ``local_node`` for each; every node counts as a machine of its own; a node that
is restarted keeps its addresses.
"""

import json
import os
import shutil
import signal
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from mainstem.testing.local_node import LocalNode
from mainstem.testing.ports import free_port

SECRET_NAME = "cluster.secret"  # noqa: S105 - a file's name


class MemberNode(LocalNode):
    """One node of a cluster under test.

    Args:
        number: its node id.
        folder: the folder with the data of all nodes.
        join: the addresses of other nodes; empty for the first node.
        arguments: further command line arguments of the node.
        environment: variables set on top of this process's environment.
    """

    def __init__(
        self,
        number: int,
        folder: Path,
        join: Sequence[str],
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder / f"node-{number}", arguments=arguments, environment=environment)
        self.number = number
        self.join = tuple(join)
        self.prefix: tuple[
            str, ...
        ] = ()  # prefix of the command, such as one that enters a network namespace
        self.peers = f"127.0.0.1:{free_port()}"
        self.secret = folder / SECRET_NAME

    def start(self, *, timeout_s: float = 60.0) -> None:
        """Start the process and wait until it is part of the cluster."""
        super().start(timeout_s=timeout_s)
        self.peers = str(self.announced["peers"])

    def pause(self) -> None:
        """Pause the process, as on a machine that stalls."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Resume a paused node."""
        os.kill(self.pid, signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        """Whether the process exists."""
        return self._process is not None and self._process.poll() is None

    def _command(self) -> list[str]:
        joined = ["--join", ",".join(self.join)] if self.join else []
        return [
            *self.prefix,
            *super()._command(),
            "--node-id",
            str(self.number),
            "--peer-port",
            self.peers.rpartition(":")[2],
            "--set",
            f"cluster.machine=machine-{self.number}",
            "--set",
            f"cluster.secret_file={self.secret}",
            *joined,
        ]


class LocalCluster:
    """A cluster under test.

    Args:
        count: the initial number of nodes.
        arguments: further command line arguments of every node.
    """

    def __init__(self, count: int = 3, *, arguments: Sequence[str] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mainstem-cluster-"))
        self.arguments = tuple(arguments)
        (self.folder / SECRET_NAME).write_text("the secret of a cluster under test\n")
        self.nodes: dict[int, MemberNode] = {}
        self._count = count
        self._made = 0  # a node id is used once: a node that is added later gets a new one

    def __enter__(self) -> Self:
        try:
            self.add()
            self.start_together([self._make() for _ in range(self._count - 1)])
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
    def bootstrap(self) -> str:
        """Every node's address, for clients."""
        return ",".join(node.kafka for node in self.nodes.values())

    def add(self) -> MemberNode:
        """Start one more node."""
        node = self._make()
        node.start()
        return node

    def remove(self, number: int) -> None:
        """Remove a node permanently with a clean stop; it must have been drained."""
        node = self.nodes.pop(number)
        assert node.stop() == 0, node.log_tail()
        node.close()

    def start_together(self, nodes: Iterable[MemberNode]) -> None:
        """Start nodes in parallel: without a majority none of them becomes ready."""
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda node: node.start(), nodes))

    def member(self, number: int, join: Sequence[str]) -> MemberNode:
        """Make a node that is not started yet; subclasses may change its environment."""
        return MemberNode(number, self.folder, join, self.arguments)

    def _make(self) -> MemberNode:
        self._made = number = self._made + 1
        join = [node.peers for node in self.nodes.values() if not node.peers.endswith(":0")]
        node = self.nodes[number] = self.member(number, join)
        return node

    def wait_for_three_voters(self, *, timeout_s: float = 30.0) -> None:
        """Wait until the cluster tolerates the loss of any node: with two voters it does not."""
        give_up = time.monotonic() + timeout_s
        while len(self._voters()) < 3:
            assert time.monotonic() < give_up, self.logs()
            time.sleep(0.05)

    def _voters(self) -> list[int]:
        address = next(iter(self.nodes.values())).http
        with urllib.request.urlopen(f"http://{address}/v1/cluster", timeout=10) as answer:
            found: list[int] = json.loads(answer.read())["voters"]
        return found

    def logs(self) -> str:
        """The last log lines of every node, for failure messages."""
        return "\n".join(f"node {n}:\n{node.log_tail()}" for n, node in self.nodes.items())

    def close(self) -> None:
        """Kill running nodes and remove the folder."""
        for node in self.nodes.values():
            node.close()
        shutil.rmtree(self.folder, ignore_errors=True)
