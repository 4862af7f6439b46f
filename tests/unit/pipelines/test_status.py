"""Health, metrics and the status file of a connect process."""

from pathlib import Path

import pytest

from mainstem.pipelines.connector.gauges import read_gauges, write_gauges
from mainstem.pipelines.connector.progress import SourceProgress, read_progress, write_progress
from mainstem.pipelines.running.restart_policy import PipelineState
from mainstem.pipelines.running.status import (
    PipelineStatus,
    Status,
    health_of,
    metrics_text,
    read_status,
    write_status,
)


def status(*states: PipelineState, stopping: bool = False) -> Status:
    pipelines = tuple(
        PipelineStatus(
            id=f"sources.p{number}",
            connector="datagen",
            state=state,
            error="boom" if state in {PipelineState.FAILED} else "",
            records=number,
        )
        for number, state in enumerate(states)
    )
    return Status(
        pid=1, file="f", started_at=0, updated_at=0, pipelines=pipelines, stopping=stopping
    )


@pytest.mark.parametrize(
    ("states", "said", "live", "ready"),
    [
        ((PipelineState.RUNNING, PipelineState.RUNNING), "healthy", True, True),
        ((PipelineState.RUNNING, PipelineState.STARTING), "starting", True, False),
        ((PipelineState.RUNNING, PipelineState.FAILED), "degraded", True, True),
        ((PipelineState.RUNNING, PipelineState.DISABLED), "healthy", True, True),
        ((PipelineState.FAILED, PipelineState.FAILED), "failed", False, False),
        ((PipelineState.FAILED, PipelineState.DISABLED), "failed", False, False),
        ((PipelineState.DISABLED,), "healthy", True, True),
        ((PipelineState.FINISHED, PipelineState.RUNNING), "healthy", True, True),
    ],
)
def test_one_failed_pipeline_does_not_make_the_process_dead(
    states: tuple[PipelineState, ...], said: str, live: bool, ready: bool
) -> None:
    health = health_of(status(*states))
    assert (health.status, health.live, health.ready) == (said, live, ready)


def test_a_process_that_stops_is_not_ready() -> None:
    assert not health_of(status(PipelineState.RUNNING, stopping=True)).ready


def test_metrics_name_every_pipeline_and_its_state() -> None:
    text = metrics_text(status(PipelineState.RUNNING, PipelineState.FAILED))
    assert 'mainstem_pipeline_records_total{pipeline="sources.p1",connector="datagen"} 1\n' in text
    assert 'mainstem_pipeline_state{pipeline="sources.p1",state="failed"} 1\n' in text
    assert 'mainstem_pipeline_state{pipeline="sources.p1",state="running"} 0\n' in text


def test_figures_of_a_connector_are_among_the_metrics(tmp_path: Path) -> None:
    assert read_gauges(tmp_path) == {}
    write_gauges(tmp_path, {"wal_kept_bytes": 4096})
    pipeline = PipelineStatus(
        id="sources.p", connector="c", state=PipelineState.RUNNING, gauges=read_gauges(tmp_path)
    )
    said = Status(pid=1, file="f", started_at=0, updated_at=0, pipelines=(pipeline,))
    line = 'mainstem_pipeline_connector{pipeline="sources.p",gauge="wal_kept_bytes"} 4096.0\n'
    assert line in metrics_text(said)


def test_the_status_file_is_read_back(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    write_status(tmp_path, status(PipelineState.RUNNING))
    assert read_status(tmp_path) == status(PipelineState.RUNNING)


def test_progress_is_read_back(tmp_path: Path) -> None:
    assert read_progress(tmp_path) is None
    write_progress(tmp_path / "deep", SourceProgress(what="snapshot", done=3, total=9))
    assert read_progress(tmp_path / "deep") == SourceProgress(what="snapshot", done=3, total=9)
