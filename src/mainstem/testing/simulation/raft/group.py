"""A Raft group of real drivers and files under virtual time: crashes, power losses, partitions.

The event loop's time jumps, threads are replaced by virtual delays, messages are delayed, lost and
reordered by chance; everything else is what serves users. The same seed gives the same scenario.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar, TypeVarTuple

import msgspec

from mainstem.cluster.raft.core import Raft
from mainstem.cluster.raft.drivers.interfaces_driver import (
    DriverHooks,
    DriverSettings,
    StateMachine,
)
from mainstem.cluster.raft.drivers.node_driver import RaftDriver
from mainstem.cluster.raft.messages import ConfState, DurableState, SoftState
from mainstem.cluster.raft.persistence.raft_storage import RaftStorage
from mainstem.cluster.raft.state import RaftSettings
from mainstem.model.ids import NodeId
from mainstem.testing.simulation.virtual_loop import PROCESS, Call, VirtualLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_states = msgspec.msgpack.Decoder(list[tuple[int, bytes]])


class SimulatedLoop(VirtualLoop):
    """Runs jobs for threads in the loop instead, after a delay that simulates the disk."""

    job_delay_s: Callable[[], float] = staticmethod(lambda: 0.0005)

    def __init__(self) -> None:
        super().__init__()
        self._stalled: dict[int, float] = {}  # end of the stall, by process
        # Jobs for stalled disks, in order.
        self._waiting: dict[asyncio.Future[Any], Call] = {}

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run ``func`` after a short delay, unless the caller is cancelled, which means it crashed.

        While the disk of the process stalls no job runs.
        """
        del executor
        done: asyncio.Future[T] = self.create_future()
        delay_s = self.job_delay_s()
        stalled_s = self._stalled.get(PROCESS.get(), 0.0) - self.now_s if self._stalled else 0.0
        call = self.call_later(max(delay_s, stalled_s), self._run_job, done, func, args)
        if stalled_s > delay_s:
            self._waiting[done] = call
        return done

    def stall(self, process: int, seconds: float) -> None:
        """Stall the disk of a process for some time."""
        self._stalled[process] = self.now_s + seconds

    @property
    def stalled(self) -> int:
        """How many disks are stalled."""
        return sum(until_s > self.now_s for until_s in self._stalled.values())

    def end_stalls(self) -> None:
        """End all stalls and run the jobs that waited for them."""
        self._stalled.clear()
        waiting, self._waiting = self._waiting, {}
        for call in waiting.values():
            job = partial(self._run_job, *call.args)  # type: ignore[arg-type]
            call.cancel()
            self.call_later(self.job_delay_s(), job, context=call.context)

    def _run_job(
        self, done: asyncio.Future[T], func: Callable[..., T], args: tuple[object, ...]
    ) -> None:
        if self._waiting:
            self._waiting.pop(done, None)
        if done.cancelled():
            return
        try:
            outcome: T | Exception = func(*args)
        except Exception as error:  # noqa: BLE001 - it belongs to the caller that awaits the job
            outcome = error
        # A crash can also happen after the job is done and before its result is delivered.
        self.call_later(self.job_delay_s(), _settle, done, outcome)


def _settle(done: asyncio.Future[T], outcome: T | Exception) -> None:
    if done.cancelled():
        return
    if isinstance(outcome, Exception):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)


class LoopClock:
    """The time of the loop in which it was created."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ahead_ms = 0  # how far the wall clock is ahead

    def wall_ms(self) -> int:
        """Milliseconds since the start of the scenario, by a clock that may be wrong."""
        return int(self._loop.time() * 1_000) + self.ahead_ms

    def monotonic(self) -> float:
        """Seconds since the start of the scenario."""
        return self._loop.time()


class ListMachine:
    """Records all applied entries, in order."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, bytes]] = []

    def apply(self, index: int, data: bytes) -> None:
        """Apply an entry."""
        assert not self.entries or index > self.entries[-1][0], "applied out of order"
        self.entries.append((index, data))

    def snapshot(self) -> Callable[[], bytes]:
        """Take a copy that can be encoded later."""
        held = list(self.entries)
        return lambda: msgspec.msgpack.encode(held)

    def restore(self, state: bytes) -> None:
        """Restore from a snapshot."""
        self.entries = _states.decode(state) if state else []


class FaultyDisk:
    """Records the content of each file at its last sync, which is what a power loss leaves."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._synced: dict[int, bytes] = {}
        self.broken = False
        self.has_failed = False  # since it was last checked

    def sync(self, fd: int) -> None:
        """Replacement of ``fdatasync``."""
        if self.broken:
            self.has_failed = True
            raise OSError(5, "the disk is broken")
        status = os.fstat(fd)
        reading = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)  # ``fd`` may be write-only
        try:
            self._synced[status.st_ino] = os.read(reading, status.st_size)
        finally:
            os.close(reading)

    def lose_power(self, folder: Path) -> None:
        """Remove unsynced data, except for some of the bytes at the end."""
        for path in sorted(folder.iterdir()):
            kept = self._synced.get(path.stat().st_ino, b"")
            unsynced = path.read_bytes()[len(kept) :]
            torn = unsynced[: self._random.randrange(len(unsynced) + 1)] if unsynced else b""
            with path.open("r+b") as file:
                file.write(kept + torn)
                file.truncate()


class Node:
    """One node of the group, up or down."""

    def __init__(self, node_id: NodeId, folder: Path, initial_state: DurableState | None) -> None:
        self.id = node_id
        self.folder = folder
        self.initial_state = initial_state
        self.machine = ListMachine()
        self.driver: RaftDriver | None = None
        self.storage: RaftStorage
        self.disk: FaultyDisk
        self.lives = 0
        self.fatal: BaseException | None = None
        self.members = ConfState()
        self.on_role: Callable[[], None] = lambda: None
        self.on_fatal: Callable[[BaseException], None] = lambda _error: None
        self.context = copy_context()  # of its process
        self.clock = LoopClock()

    def failed(self, error: BaseException) -> None:
        """Handle an error that ends the node."""
        self.fatal = error
        self.on_fatal(error)


class RaftCluster:
    """Runs a Raft group of real drivers under virtual time.

    Created inside a running ``SimulatedLoop``.
    """

    def __init__(
        self,
        folder: Path,
        random: Random,
        *,
        loss: float = 0.0,
        settings: DriverSettings | None = None,
    ) -> None:
        self._folder = folder
        self._random = random
        self._driver_settings = settings or DriverSettings()
        self.loss = loss
        self.delay_s = 0.002
        self.cut: set[tuple[NodeId, NodeId]] = set()
        self.slow: dict[tuple[NodeId, NodeId], float] = {}  # extra delay in seconds
        self.nodes: dict[NodeId, Node] = {}
        self.messages = 0
        self.on_role: Callable[[NodeId, SoftState], None] = lambda _node, _role: None

    def _role_changed(self, node: Node, role: SoftState) -> None:
        self.on_role(node.id, role)
        node.on_role()

    def add(self, node_id: NodeId, initial_state: DurableState | None = None) -> Node:
        """Add a node, not yet started."""
        node = Node(node_id, self._folder / f"node-{node_id}", initial_state)
        node.disk = FaultyDisk(self._random)
        self.nodes[node_id] = node
        return node

    def start(self, node: Node) -> RaftDriver:
        """Start a node from its folder."""
        assert node.driver is None, "it is up"
        node.lives += 1
        machine = self.new_machine(node)
        node.storage = RaftStorage(node.folder, segment_bytes=2_000, sync=node.disk.sync)
        durable = node.storage.open(node.initial_state)
        clock = node.clock
        core = Raft(
            RaftSettings(node_id=node.id, append_bytes_max=4_000),
            durable,
            chance=self._random.random,
            now_s=clock.monotonic(),
        )
        hooks = DriverHooks(
            on_fatal=node.failed,
            on_role=partial(self._role_changed, node),
            on_members=lambda members: setattr(node, "members", members),
            settings=self._driver_settings,
        )
        transport = _Transport(self, node.id)
        node.driver = RaftDriver(core, node.storage, machine, transport, clock, hooks)
        node.driver.start(node.storage.state)
        return node.driver

    def new_machine(self, node: Node) -> StateMachine:
        """The initial state machine of one node."""
        node.machine = ListMachine()
        return node.machine

    async def stop(self, node: Node) -> None:
        """Stop a node cleanly."""
        assert node.driver is not None, "it is down"
        driver, node.driver = node.driver, None
        await driver.close()

    def kill(self, node: Node, *, power_loss: bool) -> None:
        """Kill a node; with ``power_loss`` unsynced data is lost, too."""
        assert node.driver is not None, "it is down"
        driver, node.driver = node.driver, None
        driver.abandon()
        node.storage.close_now()
        if power_loss:
            node.disk.lose_power(node.folder)

    def leader(self) -> Node | None:
        """The leader of the latest term, or None."""
        found, found_term = None, -1
        for node in self.nodes.values():
            if node.driver is None:
                continue
            state = node.driver.state
            if state.is_leader and state.term > found_term:
                found, found_term = node, state.term
        return found

    async def wait_for_leader(self, timeout_s: float = 30.0) -> Node:
        """Wait until a leader is elected."""
        await self.wait_until(lambda: self.leader() is not None, timeout_s)
        leader = self.leader()
        assert leader is not None, "waited for"
        return leader

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Wait until a condition holds."""
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - time is virtual, polling costs nothing
                await asyncio.sleep(0.05)

    def isolate(self, node: Node) -> None:
        """Drop all messages from and to a node."""
        for other in self.nodes:
            self.cut |= {(node.id, other), (other, node.id)}

    def deafen(self, node: Node) -> None:
        """Drop all messages to a node; those that it sends arrive."""
        self.cut |= {(other, node.id) for other in self.nodes if other != node.id}

    def heal(self) -> None:
        """End all cuts and delays."""
        self.cut.clear()
        self.slow.clear()

    def carry(self, from_: NodeId, to: NodeId, data: bytes) -> None:
        """Send a message, subject to cuts, losses and delays."""
        self.messages += 1
        if (from_, to) in self.cut or self._random.random() < self.loss:
            return
        delay_s = self.delay_s * (0.5 + self._random.random()) + self.slow.get((from_, to), 0.0)
        node = self.nodes.get(to)
        if node is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(delay_s, self._arrive, from_, to, data, context=node.context)

    def check_agreement(self) -> None:
        """Check that all nodes have applied the same entries, each up to its index."""
        longest = max((node.machine.entries for node in self.nodes.values()), key=len)
        for node in self.nodes.values():
            entries = node.machine.entries
            assert entries == longest[: len(entries)], f"node {node.id} applied different entries"

    async def close(self) -> None:
        """Stop all nodes."""
        for node in self.nodes.values():
            if node.driver is not None:
                await self.stop(node)

    def _arrive(self, from_: NodeId, to: NodeId, data: bytes) -> None:
        node = self.nodes.get(to)
        if node is not None and node.driver is not None and (from_, to) not in self.cut:
            node.driver.receive(data)


class _Transport:
    def __init__(self, cluster: RaftCluster, node_id: NodeId) -> None:
        self._cluster = cluster
        self._node_id = node_id

    def send(self, to: NodeId, data: bytes) -> None:
        """Send a message over the network."""
        self._cluster.carry(self._node_id, to, data)
