"""One node of ``simulator``: the streams of a real node on real files, killed and restarted."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mainstem.log.disk.group_commit import GroupCommit
from mainstem.log.disk.space_monitor import DiskSpaceMonitor
from mainstem.log.naming import RANGE_HEADER, RANGE_SEAL, parse_range_directory
from mainstem.log.range_log import RangeLog
from mainstem.log.store import LogStore, StoreSettings
from mainstem.log.verification.scrubber import Scrubber
from mainstem.model.config.topic import topic_settings
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, StorageMayRefuse, Unavailable
from mainstem.model.features import OWN_LEVELS
from mainstem.model.ids import NodeId, RangeIndex, StreamId
from mainstem.model.metadata import Node
from mainstem.node.clustering.levels_driver import LevelsDriver
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import AnyFact, RegisterNode
from mainstem.placement.changes.replication_commands import ReplicaCompleted
from mainstem.placement.persistence.identity_storage import NAME, NodeIdentity, open_identity
from mainstem.placement.persistence.version_level_driver import VersionLevelDriver
from mainstem.placement.raft_service import RaftPlacementService
from mainstem.placement.state.catalogue import Catalogue
from mainstem.streams.context import NodeContext
from mainstem.streams.maintenance.compaction_driver import CompactionDriver
from mainstem.streams.maintenance.merge_driver import MergeDriver
from mainstem.streams.service import StreamService
from mainstem.streams.writer.flusher import Flusher
from mainstem.streams.writer.roll_driver import RollDriver
from mainstem.telemetry.metrics import Metrics
from mainstem.testing.simulation.cluster.catalogue_group import SimCatalogueGroup
from mainstem.testing.simulation.cluster.coordinators import SimCoordinators
from mainstem.testing.simulation.cluster.disk import SimDisk
from mainstem.testing.simulation.cluster.node_tasks import SimNodeTasks
from mainstem.testing.simulation.cluster.process import ProcessCalls
from mainstem.testing.simulation.peer_network import PeerNetwork

if TYPE_CHECKING:
    from mainstem.log.disk.space import DiskSpace
    from mainstem.log.verification.damage import Damage

# Scenarios are too short for as many ranges as a real node keeps before merging.
RANGES_MAX: Final = 6
RANGES_AFTER: Final = 3
KEYS_BYTES_MAX: Final = 1 << 20
# How long a client waits for an answer.
WAIT_MAX_S: Final = 5.0
# How long a node may run after a sync has failed.
EXIT_S: Final = 0.5

T = TypeVar("T")

_log = logging.getLogger(__name__)


class SimNode:
    """Runs one simulated node on real files and restarts it.

    Args:
        number: which node.
        folder: its disk.
        catalogue_group: where the catalogue is kept.
        network: between the nodes.
        disk: its disk, with faults.
        rng: decides what a power loss removes.
    """

    def __init__(
        self,
        number: int,
        folder: Path,
        catalogue_group: SimCatalogueGroup,
        network: PeerNetwork,
        disk: SimDisk,
        rng: Random,
    ) -> None:
        self.id = NodeId(number)
        self._rng = rng
        self.incarnation = 0
        self.is_up = False
        self.fatal: list[BaseException] = []
        self.exits = 0  # because the disk failed
        self.is_damaged = False  # some of its files were changed
        self.levels = OWN_LEVELS  # levels of ``mainstem.version`` that its program reads
        self.refusals = 0  # how often a program that is too old did not start
        self.on_refused: Callable[[], None] = lambda: None
        self._is_registered = False
        self.streams: StreamService | None = None
        self._coordinators: SimCoordinators | None = None
        self._boots = 0
        self.folder = folder
        self.disk = disk
        disk.on_failed = self._expect_exit
        self.clock = catalogue_group.clocks[self.id]
        self.process = ProcessCalls(self.id)
        member = catalogue_group.nodes[self.id]
        member.context, member.on_fatal = self.process.context, self.failed
        self._catalogue_group = catalogue_group
        self._network = network
        self._store: LogStore
        self._space: DiskSpace
        self._watching: asyncio.Task[None]
        self._commits: GroupCommit
        self._tasks: SimNodeTasks | None = None
        self._starting: asyncio.Task[None] | None = None
        self._under_way: dict[
            asyncio.Task[Any], None
        ] = {}  # in the order in which they were started

    def begin(self) -> "asyncio.Task[None]":
        """Start from the files on disk; the task is done when the node serves."""
        self.is_up = True
        self._is_registered = False
        self.incarnation += 1
        self._catalogue_group.levels[self.id] = self.levels
        settings = StoreSettings(boot_id=f"boot {self._boots}")
        watch = DiskSpaceMonitor(self.folder, reserve_bytes=0)
        self._space = watch.space
        self._store = LogStore(self.folder, settings, self.clock, self.disk, space=watch.space)
        context = self.process.context
        service = context.run(self._catalogue_group.begin, self.id)
        loop = asyncio.get_running_loop()
        self._watching = loop.create_task(watch.run(), context=context)
        self._starting = loop.create_task(self._start(service), context=context)
        return self._starting

    async def serve(self, request: Callable[[], Awaitable[T]]) -> T:
        """Run a request on this node and return its answer.

        Raises:
            TimeoutError: it has not answered in time; it may still carry out the request.
        """
        return await self.process.call(request, WAIT_MAX_S)

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue of this node, which may be outdated."""
        return self._catalogue_group.services[self.id].catalogue

    async def submit(self, command: Command[T]) -> T:
        """Submit a command to the catalogue."""
        return await self._catalogue_group.services[self.id].submit(command)

    async def look(self, view: Callable[[Catalogue], T]) -> T:
        """Read the current catalogue, after a read barrier."""
        driver = self._catalogue_group.nodes[self.id].driver
        known = self.catalogue
        if driver is None:
            raise Unavailable(ErrorCode.TIMED_OUT, f"node {self.id} is gone")
        await driver.read_barrier(WAIT_MAX_S)
        return view(known)

    def failed(self, error: BaseException) -> None:
        """Handle a fatal error: only a fault of its own disk may end the process."""
        if not self.is_up:
            return  # it has ended already
        is_old = self.levels[1] < self._catalogue_group.level and not self._is_registered
        is_refused = is_old and _is_too_old(error)
        if not is_refused and not self.disk.may_end_process:
            self.fatal.append(error)
            return
        life = self.incarnation

        def end() -> None:
            if not self.is_up or self.incarnation != life:
                return
            self.kill()
            if (
                is_refused
            ):  # the program cannot read what the cluster writes: a newer one is started
                self.refusals += 1
                self.levels = OWN_LEVELS
                self.on_refused()
            else:
                self.exits += 1

        asyncio.get_running_loop().call_soon(end)

    def _expect_exit(self) -> None:
        """Check that the node exits after a failed sync: unsynced writes cannot be trusted."""
        life = self.incarnation

        def check() -> None:
            if self.is_up and self.incarnation == life and not self.process.is_paused:
                self.fatal.append(Corrupt(f"node {self.id} keeps running after a sync has failed"))

        asyncio.get_running_loop().call_later(EXIT_S, check)

    def _follow_levels(
        self, service: RaftPlacementService, streams: StreamService, identity: NodeIdentity
    ) -> None:
        """Start the drivers of a current node that handle nodes of an older release."""
        level = VersionLevelDriver(service, self.folder, identity)

        def restored() -> None:
            level.note()
            streams.lifecycle.resync()

        self._catalogue_group.on_restored[self.id] = restored
        announcing = LevelsDriver(service, self.id, self.incarnation)
        self._catalogue_group.announcing[self.id] = announcing
        self._upkeep(announcing.run())

    async def _start(self, service: RaftPlacementService) -> None:
        life = self.incarnation

        def failed(error: BaseException) -> None:
            if self.is_up and self.incarnation == life:
                self.failed(error)

        # Every release writes it at its first start, and only then: later the disk may be full.
        identity = open_identity(self.folder, node_id=self.id, cluster_id="simulated", now_ms=0)
        await self._register(service)
        service.subscribe(self._on_fact)
        clock = self.clock
        commits = self._commits = GroupCommit(asyncio.get_running_loop(), failed, self.disk)
        rolls = RollDriver(service, self._store, commits, failed)
        flusher = Flusher(
            Metrics(), sync=commits.request, roll=rolls.roll, fatal=failed, space=self._space
        )
        peers = self._network.join(self.id)
        streams = StreamService(
            NodeContext(
                service,
                self._store,
                flusher,
                clock,
                lambda topic: topic_settings(topic.configs),
                self.id,
            ),
            peers,
        )
        self._tasks = SimNodeTasks(self._catalogue_group.nodes[self.id], service, clock, failed)
        self._tasks.begin(peers, life, streams)
        self._catalogue_group.on_restored[self.id] = streams.lifecycle.resync
        if self.levels == OWN_LEVELS:
            self._follow_levels(service, streams, identity)
        self.streams = streams
        await streams.lifecycle.start(life)
        self._tasks.keep_fresh()
        self._coordinators = SimCoordinators(
            (self.id, life), service, streams, peers, clock, self._rng
        )

    @property
    def coordinators(self) -> SimCoordinators:
        """The coordinators of groups and transactions on this node."""
        if self._coordinators is None:
            raise Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, "the node is not up")
        return self._coordinators

    def trim(self, before: int) -> None:
        """Delete the records before an offset, without waiting for the result."""
        assert self.streams is not None, "a node that serves"
        self._upkeep(self.streams.delete_records("t", 0, before))

    def join_ranges(self) -> None:
        """Merge the ranges of the stream, if this node writes it and there are many."""
        assert self.streams is not None, "a node that serves"
        service = self._catalogue_group.services[self.id]
        merging = MergeDriver(
            self.streams, service, self._store, ranges_max=RANGES_MAX, ranges_after=RANGES_AFTER
        )
        self._upkeep(merging.run_once())

    def compact(self) -> None:
        """Compact the compacted topics that this node writes."""
        assert self.streams is not None, "a node that serves"
        service = self._catalogue_group.services[self.id]
        compaction = CompactionDriver(
            self.streams, service, self._store, self.clock, KEYS_BYTES_MAX
        )
        self._upkeep(compaction.run_once())

    def _upkeep(self, work: Coroutine[None, None, Any]) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work, context=self.process.context)
        self._under_way[task] = None
        life = self.incarnation

        def ended(task: asyncio.Task[Any]) -> None:
            self._under_way.pop(task, None)
            if task.cancelled() or (error := task.exception()) is None:
                return
            if not isinstance(error, MainstemError) and self.is_up and self.incarnation == life:
                self.failed(error)

        task.add_done_callback(ended)

    def scrub(self) -> set[StreamId]:
        """Scrub all sealed files; returns the streams in which damage was found."""
        found: list[Damage] = []
        assert self.streams is not None, "a node that serves"
        scrubber = Scrubber(lambda: list(self._store.logs.values()), found.append)
        while scrubber.rounds < 2:
            scrubber.step()
        damaged: set[StreamId] = set()
        for damage in found:
            log = self._store.logs.get(damage.path.parent)
            if log is not None:
                name = log.identity.name
                damaged.add(name.stream)
                self.streams.ranges.lost(name.stream, RangeIndex(name.index))
        return damaged

    async def _register(self, service: RaftPlacementService) -> None:
        node = Node(self.id, "127.0.0.1", 9092)
        directory = self._store.directory_id.hex()
        command = RegisterNode(node, self.incarnation, directory, self.levels)
        while service.catalogue.incarnation(self.id) < self.incarnation:
            try:
                await service.submit(command)
            except (MainstemError, TimeoutError) as error:
                if _is_too_old(error):
                    raise
                await asyncio.sleep(0.1)  # no leader, or the outcome is unknown
        self._is_registered = True

    def kill(self, *, power: bool = False) -> None:
        """Kill the process: files stay, except what the kernel could not write; locks are released.

        Args:
            power: the machine loses power, and with it what was not synced.
        """
        self.is_up = False
        has_lost_log, has_lost_catalogue = self.disk.process_ended()
        self.process.end()
        self._watching.cancel()
        if self._starting is not None:
            self._starting.cancel()
        for task in list(self._under_way):
            task.cancel()
        if self._tasks is not None:
            self._tasks.end()
        self._network.leave(self.id)
        self._boots += power
        if power or has_lost_log:
            for log in self._store.logs.values():
                _lose_unsynced(log, self._rng)
        if self._coordinators is not None:
            self._coordinators.end()
            self._coordinators = None
        if self.streams is not None:
            self.streams.lifecycle.close()
            self.streams = None
            self._commits.close()
        self._catalogue_group.on_restored.pop(self.id, None)
        self._catalogue_group.announcing.pop(self.id, None)
        self._catalogue_group.end(self.id, power=power or has_lost_catalogue)
        os.close(self._store._lock)

    def kill_and_corrupt(self) -> bool:
        """Kill the node and remove some synced data of an open range; False if there is none.

        Without a synced position in the checkpoint nothing is removed: it could not be detected.
        """
        with StorageMayRefuse(_log, "nothing is lost") as storage:
            self._store.write_checkpoint()
        if storage.refusal is not None:
            self.kill()
            return False
        logs = [
            log
            for _, log in sorted(self._store.logs.items())
            if log.segments and not log.sealed and log.synced_place[2]
        ]
        self.kill()
        self.is_damaged |= bool(logs)
        if logs:
            _lose_synced(self._rng.choice(logs), self._rng)
        return bool(logs)

    def _on_fact(self, fact: AnyFact) -> None:
        """Check that the ranges that this node reported as complete are complete."""
        if not isinstance(fact, ReplicaCompleted) or fact.node != self.id:
            return
        logs = [
            log
            for log in self._store.logs.values()
            if (log.identity.name.stream, log.identity.name.index) == (fact.stream, fact.index)
        ]
        newest = max(logs, key=lambda log: log.identity.name.generation, default=None)
        if newest is not None and newest.damage:
            self.fatal.append(Corrupt(f"{newest.directory} is not complete: {newest.damage}"))


def _is_too_old(error: BaseException) -> bool:
    """Whether a program does not start because the cluster's level is too new for it."""
    codes = (ErrorCode.INVALID_FEATURE_LEVEL, ErrorCode.UNSUPPORTED_VERSION)
    return isinstance(error, MainstemError) and error.code in codes


def folder_level(node: SimNode) -> int:
    """The feature level recorded in a node's data folder."""
    if not (node.folder / NAME).exists():
        return 1
    try:
        return open_identity(node.folder, node_id=node.id, cluster_id=None, now_ms=0).level
    except OSError:
        return 1  # it cannot be read now


def corrupt_range(folder: Path, topic: str, indexes: set[int], rng: Random) -> bool:
    """Flip a bit in one of these sealed ranges of a topic; False if there is none."""
    found = sorted(
        path
        for path in folder.glob(f"topics/{topic}~*/partition-0/range-*/*.log")
        if (path.parent / RANGE_SEAL).exists()
        and (parse_range_directory(path.parent.name) or (-1,))[0] in indexes
        and path.stat().st_size
    )
    if not found:
        return False
    path = rng.choice(found)
    _flip(path, rng.randrange(path.stat().st_size), rng)
    return True


def _lose_unsynced(log: RangeLog, rng: Random) -> None:
    """Apply a power loss to a range's files: synced data stays, and some of the rest."""
    if log.sealed or log.closed or not log.directory.is_dir():
        return
    if not log.directory_synced:
        _lose(sorted(log.directory.iterdir()), rng)
        if not any(log.directory.iterdir()):
            log.directory.rmdir()
        return
    _, base, position = log.synced_place
    for segment in log.segments:
        if segment.base_offset > base:
            _lose([segment.path], rng)
        elif segment.base_offset == base:
            _tear(segment.path, position, rng)


def _lose_synced(log: RangeLog, rng: Random) -> None:
    """Damage synced data: truncate a file or flip a bit."""
    _, base, position = log.synced_place
    (path,) = [segment.path for segment in log.segments if segment.base_offset == base]
    if rng.random() < 0.3:
        path = log.directory / RANGE_HEADER
        position = path.stat().st_size
    at = rng.randrange(position)
    if rng.random() < 0.5:
        os.truncate(path, at)
        return
    _flip(path, at, rng)


def _flip(path: Path, at: int, rng: Random) -> None:
    """Flip a bit of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        (value,) = file.read(1)
        file.seek(at)
        file.write(bytes([value ^ (1 << rng.randrange(8))]))


def _lose(paths: list[Path], rng: Random) -> None:
    """Remove files that were never synced, completely or in part."""
    is_gone = rng.random() < 0.5
    for path in paths:
        if is_gone:
            for gone in (path, path.with_suffix(".index"), path.with_suffix(".timeindex")):
                gone.unlink(missing_ok=True)
        else:
            _tear(path, 0, rng)


def _tear(path: Path, synced: int, rng: Random) -> None:
    """Keep a random prefix of the unsynced data of a file, or parts of it."""
    size = path.stat().st_size
    kept = synced if rng.random() < 0.5 else rng.randint(synced, max(size, synced))
    os.truncate(path, kept)
    if kept > synced and rng.random() < 0.3:
        hole = rng.randint(synced, kept)
        with path.open("r+b") as file:
            file.seek(hole)
            file.write(bytes(rng.randint(0, kept - hole)))
