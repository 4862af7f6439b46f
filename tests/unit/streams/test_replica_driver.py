"""A replica's state machine and its files agree, also when writes fail."""

from pathlib import Path

import pytest
from tests.kit.log import EPOCH, Disk, staged
from tests.unit.streams.full_disk import FullDisk

from mainstem.model.ids import Epoch, Offset
from mainstem.streams.replica.driver import ReplicaDriver, ReplicaNotification
from mainstem.streams.replica.promise_storage import Promise
from mainstem.streams.replica.state_machine import RangeReplica, Refusal, ReplicaState
from mainstem.streams.writer.flusher import Flusher
from mainstem.telemetry.metrics import Metrics


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_a_failed_write_before_the_first_sync_keeps_what_was_written(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open()
    fatal: list[BaseException] = []
    flusher = Flusher(
        Metrics(),
        sync=lambda _: None,  # the directory never becomes durable
        roll=lambda _: None,
        fatal=fatal.append,
    )
    state = ReplicaState(Offset(0), Offset(0), Epoch(EPOCH), "disk")
    machine = RangeReplica(state, acks_unsynced=True)
    driver = ReplicaDriver(log, machine, Promise(tmp_path / "promise"), flusher)
    driver.attach()
    answers: list[ReplicaNotification] = []

    def append(start: int) -> None:
        batch = staged(start)[0]
        span = Offset(start), Offset(start + 1)
        driver.append(Epoch(EPOCH), span, Offset(0), batch, answers.append)

    append(0)
    full = FullDisk(monkeypatch, tmp_path)
    full.room = 0
    append(1)
    full.room = None
    flusher.space.measured(1 << 60)
    append(2)
    assert answers[-1] == Refusal(gap_at=Offset(1))
    append(1)
    assert log.written_end == 2
    assert not fatal
