"""Oversize messages in ``simulator``: batches and commands just above or below the limits.

Checked guarantees: a message above a limit is refused permanently and never stored, one just below
is accepted, and a producer whose batch was refused continues with the same sequence.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.limits import KIB, MIB
from mainstem.model.records.record import ProducerStamp, Record, build_batch
from mainstem.placement.changes.security_commands import SetCredentials
from mainstem.security.authentication.passwords import Credentials
from mainstem.testing.simulation.cluster.catalogue_group import ENTRY_BYTES_MAX
from mainstem.testing.simulation.cluster.clients import FORBIDDEN, GuaranteeViolated, SimClients
from mainstem.testing.simulation.cluster.node import SimNode
from mainstem.testing.simulation.cluster.nodes import SimCluster

USER: Final = "large"
FIRST_PRODUCER: Final = 1_000
REFUSED: Final = frozenset({ErrorCode.RECORD_TOO_LARGE, ErrorCode.INVALID_REQUEST})
COMMAND_BYTES: Final = (ENTRY_BYTES_MAX // 2, ENTRY_BYTES_MAX + KIB, MIB, 6 * MIB)


class SimOversize:
    """Sends batches and commands of sizes around the limits.

    Args:
        cluster: the nodes.
        clients: the regular clients, which know what was acknowledged.
        note: called with the outcome.
    """

    def __init__(
        self, cluster: SimCluster, clients: SimClients, note: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._rng = cluster.rng
        self._clients = clients
        self._note = note
        self._count = 0
        self._is_huge_sent = False
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order in which they were started
        self.error: BaseException | None = None

    def send(self) -> int:
        """Start to send a message; a violated guarantee is stored in ``error``."""
        self._count += 1
        serving = self._cluster.serving()
        if serving and self._rng.random() < 0.4:
            size = self._rng.choice(COMMAND_BYTES)
            work = self._command(self._rng.choice(serving), size)
        else:
            work = self._produce(ProducerStamp(FIRST_PRODUCER + self._count, 0, 0))
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return 1

    async def finish(self) -> None:
        """Wait, without faults, until all messages in flight have ended."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        self.check()

    def check(self) -> None:
        """Check that no oversize message was accepted."""
        if self.error is not None:
            raise self.error
        for node in self._cluster.serving():
            found = node.catalogue.security.users.get(USER)
            if found is not None and len(found.argon2 or "") > ENTRY_BYTES_MAX:
                raise GuaranteeViolated(f"node {node.id} has a command that is too large")

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and self.error is None:
            self.error = task.exception()

    async def _produce(self, stamp: ProducerStamp) -> None:
        """Send a batch that is too large, then one that fits exactly, or a small one."""
        most = self._cluster.message_bytes_max
        more = 1 if self._cluster.is_huge else self._rng.choice((1, 100, most, 20 * most))
        if not self._is_huge_sent or not self._cluster.is_huge:
            await self._produce_too_large(stamp, most + more)
        if self._cluster.is_huge:
            most, self._is_huge_sent = (100 if self._is_huge_sent else most), True
        values = [value_of(b"fits %d " % stamp.producer_id, most, stamp)]
        base = await self._clients.write(values, stamp)
        self._note(f"{stamp.producer_id} fits at {base}")
        if base is not None:
            self._clients.acked[base] = values[0]

    async def _produce_too_large(self, stamp: ProducerStamp, size: int) -> None:
        node = self._cluster.writer()
        if node is None or (streams := node.streams) is None:
            return
        batch = batch_of(value_of(FORBIDDEN, size, stamp), stamp)
        try:
            base = await node.serve(partial(streams.append, "t", 0, batch))
        except (MainstemError, TimeoutError) as error:
            self._check_refusal(error, f"a batch of {size} bytes")
        else:
            raise GuaranteeViolated(f"a batch of {size} bytes is stored at {base}")

    async def _command(self, node: SimNode, size: int) -> None:
        command = SetCredentials(USER, Credentials(argon2="x" * size))
        what = f"a command of {size} bytes"
        try:
            await node.serve(partial(node.submit, command))
        except (MainstemError, TimeoutError) as error:
            if size <= ENTRY_BYTES_MAX and isinstance(error, InvalidRequest):
                raise GuaranteeViolated(f"{what} is refused: {error}") from error
            self._check_refusal(error, what)
        else:
            self._note(f"{what} is done")
            if size > ENTRY_BYTES_MAX:
                raise GuaranteeViolated(f"{what} was carried out")

    def _check_refusal(self, error: Exception, what: str) -> None:
        """Check that the error is permanent, or that no node was reachable."""
        kind = error.code.name if isinstance(error, MainstemError) else "no answer"
        self._note(f"{what}: {kind}")
        if isinstance(error, MainstemError) and not error.retriable and error.code not in REFUSED:
            raise GuaranteeViolated(f"{what} is refused with {error}") from error


def value_of(start: bytes, size: int, stamp: ProducerStamp) -> bytes:
    """A value that makes a batch of that size."""
    overhead = len(batch_of(start, stamp)) - len(start)
    value = start.ljust(size - overhead, b".")
    while (over := len(batch_of(value, stamp)) - size) != 0:
        value = value[:-over] if over > 0 else value + b"." * -over
    return value


def batch_of(value: bytes, stamp: ProducerStamp) -> bytearray:
    """A batch of one record, as ``SimClients`` make theirs."""
    return build_batch([Record(0, 1, b"k", value)], producer=stamp)
