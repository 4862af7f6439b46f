"""A share partition behaves like a list in which every record has a state of its own."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mainstem.coordination.share.partition import (
    AcquireLimit,
    ReadBatch,
    SharePartition,
    SharePartitionLimits,
)
from mainstem.coordination.share.record_window import DONE, ShareRecordState
from mainstem.coordination.share.requests import AckRange, AckType
from mainstem.model.errors import InvalidRequest

MEMBERS = ["a", "b", "c"]


@dataclass
class Known:
    """What the model knows of one record."""

    state: ShareRecordState
    deliveries: int = 0
    member: str = ""
    deadline_ms: int = 0


class ShareMachine(RuleBasedStateMachine):
    """The model: every record that was ever given out, one by one."""

    @initialize(
        start=st.integers(0, 50),
        lock_ms=st.integers(1, 20),
        delivery_limit=st.integers(2, 4),
        locks_max=st.integers(1, 30),
    )
    def begin(self, start: int, lock_ms: int, delivery_limit: int, locks_max: int) -> None:
        self.chosen = SharePartitionLimits(
            lock_duration_ms=lock_ms, delivery_limit=delivery_limit, locks_max=locks_max
        )
        self.share = SharePartition(start)
        self.batches: list[ReadBatch] = []
        self.end = start
        self.floor = start
        self.now_ms = 0
        self.known: dict[int, Known] = {}
        self.settled: set[int] = set()

    def holder(self, offset: int) -> ReadBatch | None:
        return next((b for b in self.batches if b.start <= offset < b.until), None)

    def is_given_out(self, offset: int) -> bool:
        batch = self.holder(offset)
        return batch is not None and not batch.is_dead and offset >= self.floor

    def give_back(self, offset: int) -> None:
        record = self.known[offset]
        gone = record.deliveries >= self.chosen.delivery_limit or not self.is_given_out(offset)
        record.state = ShareRecordState.ARCHIVED if gone else ShareRecordState.AVAILABLE
        record.member = ""

    def expire(self) -> None:
        for offset, record in self.known.items():
            if record.state is ShareRecordState.ACQUIRED and record.deadline_ms <= self.now_ms:
                self.give_back(offset)

    @rule(gap=st.integers(0, 3), size=st.integers(1, 8), is_dead=st.booleans())
    def write(self, gap: int, size: int, is_dead: bool) -> None:
        # A gap is what compaction leaves.
        start = self.end + gap
        self.end = start + size
        self.batches.append(ReadBatch(start, self.end, is_dead))

    @rule(
        member=st.sampled_from(MEMBERS),
        records=st.integers(1, 12),
        batch_size=st.integers(0, 6),
        strict=st.booleans(),
        read_max=st.integers(1, 5),
    )
    def acquire(
        self, member: str, records: int, batch_size: int, strict: bool, read_max: int
    ) -> None:
        offset = self.share.next_offset(self.chosen.locks_max)
        if offset is None:
            assert not any(r.state is ShareRecordState.AVAILABLE for r in self.known.values())
            assert self.share.window.locks >= self.chosen.locks_max
            return
        read = [batch for batch in self.batches if batch.until > offset][:read_max]
        before = self.share.until
        portion = AcquireLimit(records=records, batch_size=batch_size, strict=strict)
        acquired = self.share.acquire(member, read, portion, self.chosen, self.now_ms)
        reached = before
        for one in acquired:
            for at in range(one.start, one.until):
                record = self.known.setdefault(at, Known(ShareRecordState.AVAILABLE))
                assert record.state is ShareRecordState.AVAILABLE, (
                    f"record {at} was given out twice"
                )
                assert self.is_given_out(at), f"record {at} is not there"
                assert record.deliveries + 1 == one.delivery_count <= self.chosen.delivery_limit
                self.known[at] = Known(
                    ShareRecordState.ACQUIRED,
                    one.delivery_count,
                    member,
                    self.now_ms + self.chosen.lock_duration_ms,
                )
            reached = max(reached, one.until)
        total = sum(one.until - one.start for one in acquired)
        assert not strict or total <= records
        assert total < records + 8, "the last batch alone goes beyond what was asked for"
        assert [o.start for o in acquired] == sorted(o.start for o in acquired)
        # What was passed over without being given out is not there, or nobody may see it.
        for at in range(offset, self.share.until):
            if at >= before and at not in self.known:
                assert not self.is_given_out(at), f"record {at} was passed over"
                self.known[at] = Known(ShareRecordState.ARCHIVED)
            elif self.known[at].state is ShareRecordState.AVAILABLE and not self.is_given_out(at):
                self.known[at].state = self.now_of(at)
        for at in range(before, self.share.until):
            if at not in self.known:
                assert not self.is_given_out(at)
                self.known[at] = Known(ShareRecordState.ARCHIVED)
        if read and any(self.is_given_out(at) for at in range(read[0].start, read[0].until)):
            assert acquired or self.share.next_offset(self.chosen.locks_max) != offset

    def now_of(self, offset: int) -> ShareRecordState:
        """Of what is not there any more it does not matter when that is noticed."""
        if offset < self.share.start:
            return ShareRecordState.ARCHIVED
        [run] = self.share.window.inside(offset, offset + 1)
        assert run.state in (ShareRecordState.AVAILABLE, ShareRecordState.ARCHIVED)
        return run.state

    @rule(
        member=st.sampled_from(MEMBERS),
        at=st.integers(0, 200),
        kinds=st.lists(st.sampled_from(list(AckType)), min_size=1, max_size=9),
        one_for_all=st.booleans(),
    )
    def acknowledge(self, member: str, at: int, kinds: list[AckType], one_for_all: bool) -> None:
        self.share.expire(self.chosen, self.now_ms)
        self.expire()
        start = self.share.start + at % 12 if at % 3 else at
        until = start + len(kinds)
        types = tuple(kinds[:1] if one_for_all else kinds)
        wanted = range(max(start, self.share.start), until)
        may = all(
            o in self.known
            and self.known[o].state is ShareRecordState.ACQUIRED
            and self.known[o].member == member
            for o in wanted
        )
        before = self.share.saved()
        try:
            self.share.acknowledge(
                member, [AckRange(start, until, types)], self.chosen, self.now_ms
            )
        except InvalidRequest:
            assert not may
            assert self.share.saved() == before
            return
        assert may
        for o in wanted:
            kind = types[0] if one_for_all else types[o - start]
            record = self.known[o]
            match kind:
                case AckType.ACCEPT:
                    record.state = ShareRecordState.ACKNOWLEDGED
                    self.settled.add(o)
                case AckType.RELEASE:
                    self.give_back(o)
                case AckType.RENEW:
                    record.deadline_ms = self.now_ms + self.chosen.lock_duration_ms
                case AckType.REJECT | AckType.GAP:
                    record.state = ShareRecordState.ARCHIVED
                    self.settled.add(o)

    @rule(member=st.sampled_from(MEMBERS))
    def release(self, member: str) -> None:
        self.share.release(member, self.chosen)
        for offset, record in self.known.items():
            if record.state is ShareRecordState.ACQUIRED and record.member == member:
                self.give_back(offset)

    @rule(later_ms=st.integers(1, 15))
    def wait(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.share.expire(self.chosen, self.now_ms)
        self.expire()

    @rule(by=st.integers(1, 10))
    def trim(self, by: int) -> None:
        self.floor = min(self.floor + by, self.end)
        self.share.trim(self.floor)
        for offset, record in self.known.items():
            if offset < self.floor and record.state is ShareRecordState.AVAILABLE:
                record.state = ShareRecordState.ARCHIVED

    @rule()
    def restart(self) -> None:
        """Whoever had something lost it; what was settled stays so."""
        self.share = SharePartition.restored(self.share.saved(), self.chosen.delivery_limit)
        self.share.trim(self.floor)
        for offset, record in self.known.items():
            if record.state is ShareRecordState.ACQUIRED:
                record.state = (
                    ShareRecordState.AVAILABLE
                    if offset >= self.floor
                    else ShareRecordState.ARCHIVED
                )
                record.member = ""
            if record.state is ShareRecordState.AVAILABLE:
                record.deliveries = min(record.deliveries, self.chosen.delivery_limit - 1)

    @invariant()
    def every_record_is_what_the_model_says(self) -> None:
        if not hasattr(self, "share"):
            return
        share = self.share
        at = share.start
        for run in share.window:
            assert run.start == at < run.until, "the window has gaps"
            at = run.until
            for offset in range(run.start, run.until):
                record = self.known[offset]
                if run.state in DONE:
                    assert record.state in DONE
                elif offset >= self.floor or run.state is ShareRecordState.ACQUIRED:
                    found = (run.state, run.deliveries, run.member)
                    assert found == (record.state, record.deliveries, record.member), offset
        for offset, record in self.known.items():
            if offset < share.start:
                assert record.state in DONE or offset < self.floor, offset
            if offset in self.settled:
                assert record.state in DONE, f"record {offset} was settled and came back"


TestSharePartition = ShareMachine.TestCase
TestSharePartition.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
