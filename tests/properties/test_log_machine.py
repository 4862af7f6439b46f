"""A range on disk behaves like a list of batches, whatever happens to it."""

import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.kit.log import Disk, staged

from mainstem.log.disk.sync_job import carry_out
from mainstem.log.range_log import SegmentSettings
from mainstem.log.segments import segment


class LogMachine(RuleBasedStateMachine):
    """The model: batches with their offsets, how many are durable, whether the range is sealed."""

    def __init__(self) -> None:
        super().__init__()
        # Syncs cost nothing in memory; what they are worth is tested with real power losses.
        memory = Path("/dev/shm")
        parent = memory if memory.is_dir() else None
        self.directory = Path(tempfile.mkdtemp(prefix="log-machine-", dir=parent))
        self.batches: list[tuple[int, int, int, bytes]] = []  # base, until, time, bytes
        self.trimmed = 0  # batches that trimming may have removed
        self.durable = 0
        self.sealed = False

    @initialize(
        segment_bytes=st.integers(100, 2_000),
        interval=st.integers(1, 600),
        start=st.integers(0, 1_000),
        save_bytes=st.sampled_from([1, 300, 64 << 20]),
    )
    def begin(self, segment_bytes: int, interval: int, start: int, save_bytes: int) -> None:
        # Steps of a few batches instead of megabytes: every way on is taken within a short run.
        reserve_bytes = min(save_bytes, 1 << 20)
        self.steps = patch.multiple(
            segment,
            SAVE_INDEX_BYTES=save_bytes,
            RESERVE_BYTES_MIN=reserve_bytes,
            RESERVE_BYTES_MAX=reserve_bytes,
        )
        self.steps.start()
        self.config = SegmentSettings(segment_bytes, 60_000, interval)
        self.start = start
        self.disk = Disk(self.directory / "data")
        self.log = self.disk.open(self.config, start_offset=start)

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            self.steps.stop()
            self.disk.kill()
        shutil.rmtree(self.directory)

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    @precondition(lambda self: not self.sealed)
    @rule(
        sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 300)), min_size=1, max_size=9),
        time=st.integers(0, 10_000),
    )
    def append(self, sizes: list[tuple[int, int]], time: int) -> None:
        call = []
        for count, size in sizes:
            batch = staged(self.end, count, size=size, timestamp=time)
            self.batches.append((batch[1], batch[2], batch[3], bytes(batch[0])))
            call.append(batch)
        self.log.append(call)

    @rule(millis=st.integers(1, 70_000))
    def time_passes(self, millis: int) -> None:
        self.disk.clock.now_ms += millis

    @rule()
    def sync(self) -> None:
        job = self.log.begin_sync()
        carry_out(job, self.disk.access)
        self.log.finish_sync(job)
        self.durable = len(self.batches)
        assert self.log.synced_end == self.end

    @rule(
        data=st.data(),
        max_bytes=st.integers(0, 3_000),
        min_one=st.booleans(),
    )
    def read(self, data: st.DataObject, max_bytes: int, min_one: bool) -> None:
        offset = data.draw(st.integers(self.log.first_offset, self.end + 1))
        ends = [until for _, until, _, _ in self.batches] or [self.start]
        until = data.draw(st.sampled_from(ends))
        piece = self.log.read(offset, max_bytes=max_bytes, until=until, min_one=min_one)
        wanted = [batch for batch in self.batches if batch[1] > offset and batch[1] <= until]
        if piece is None:
            assert not wanted or (not min_one and len(wanted[0][3]) > max_bytes)
            return
        content = piece.read()
        expected = b"".join(batch[3] for batch in wanted)
        assert content
        assert expected.startswith(content)
        assert piece.start_offset == wanted[0][0]
        assert piece.until_offset in {batch[1] for batch in wanted}
        whole = sum(len(batch[3]) for batch in wanted if batch[1] <= piece.until_offset)
        assert len(piece) == len(content) == whole
        assert len(content) <= max_bytes or (min_one and len(content) == len(wanted[0][3]))

    @rule(time=st.integers(0, 10_010))
    def find_time(self, time: int) -> None:
        held = [batch for batch in self.batches if batch[1] > self.log.first_offset]
        expected = None
        for base, until, latest, _ in held:
            if latest >= time:
                first = latest - (until - base) + 1  # records are one millisecond apart
                offset = base + max(0, time - first)
                expected = (offset, max(time, first))
                break
        assert self.log.offset_for_timestamp(time) == expected

    @precondition(lambda self: self.batches and not self.sealed)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        low = self.log.first_offset
        cuts = [low, *(batch[0] for batch in self.batches if batch[0] >= low)]
        until = data.draw(st.sampled_from(cuts))
        self.log.truncate(until)
        self.batches = [batch for batch in self.batches if batch[1] <= until]
        self.durable = min(self.durable, len(self.batches))

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.start, self.end))
        before = self.log.size_bytes
        freed = self.log.trim(start)
        assert before - freed == self.log.size_bytes
        assert not freed or self.log.first_offset <= start

    @precondition(lambda self: not self.sealed)
    @rule()
    def roll(self) -> None:
        self.log.roll()

    @precondition(lambda self: self.batches and not self.sealed)
    @rule()
    def seal(self) -> None:
        self.log.seal()
        self.sealed = True
        self.durable = len(self.batches)

    @rule(clean=st.booleans(), checkpoint=st.booleans())
    def restart(self, clean: bool, checkpoint: bool) -> None:
        if checkpoint:
            self.disk.store.write_checkpoint()
        self.disk.restart(clean=clean)
        self.reopen()

    @precondition(lambda self: self.batches and not self.sealed)
    @rule(data=st.data(), checkpoint=st.booleans())
    def power_loss(self, data: st.DataObject, checkpoint: bool) -> None:
        """Everything durable is there; the rest is cut somewhere, or ends in noise."""
        if checkpoint:
            self.disk.store.write_checkpoint()
        keep = self._bytes_of(self.batches[: self.durable])
        total = self._bytes_of(self.batches)
        left = data.draw(st.integers(keep, total))
        noise = data.draw(st.binary(max_size=100))
        self.disk.kill()
        self._cut_files(left, noise)
        self._power_on()
        self.reopen(at_least=self.durable)

    def _power_on(self) -> None:
        self.disk.boot_id += "x"
        self.disk.store = self.disk.start()

    def _held(self) -> list[tuple[int, int, int, bytes]]:
        return [batch for batch in self.batches if batch[1] > self.log.first_offset]

    def _bytes_of(self, batches: list[tuple[int, int, int, bytes]]) -> int:
        return sum(len(batch[3]) for batch in batches if batch[1] > self.log.first_offset)

    def _cut_files(self, left: int, noise: bytes) -> None:
        for path in sorted(self.log.directory.glob("*.log")):
            size = path.stat().st_size
            if left >= size:
                left -= size
                continue
            content = path.read_bytes()[:left] + noise
            path.write_bytes(content)
            left, noise = 0, b""

    def reopen(self, at_least: int | None = None) -> None:
        log = self.disk.open(self.config, start_offset=self.start)
        if at_least is not None:
            ends = [self.start, *(batch[1] for batch in self.batches)]
            assert log.written_end in ends
            assert log.written_end >= ([self.start] + [b[1] for b in self.batches])[at_least]
            self.batches = [batch for batch in self.batches if batch[1] <= log.written_end]
        self.log = log
        self.durable = len(self.batches)
        assert log.damage == []
        assert log.synced_end == log.written_end

    @invariant()
    def ends_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert log.written_end == self.end
        assert log.synced_end <= log.written_end
        assert log.sealed == self.sealed
        held = self._held()
        assert log.size_bytes == self._bytes_of(self.batches)
        assert log.max_timestamp == max((batch[2] for batch in held), default=-1)
        assert [header.base_offset for header, _ in log.batches()] == [b[0] for b in held]

    @invariant()
    def nothing_is_damaged(self) -> None:
        if hasattr(self, "log"):
            assert self.log.verify() == []


LogMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestLogMachine = LogMachine.TestCase
