"""Progress bars; none where the output is not a terminal."""

import io

import pytest

from mainstem.cli.output.pipeline_progress import PipelineProgressBars
from mainstem.pipelines.connector.progress import SourceProgress
from mainstem.pipelines.running.restart_policy import PipelineState
from mainstem.pipelines.running.status import PipelineStatus, Status


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def status(done: int, total: int | None) -> Status:
    progress = SourceProgress(what="snapshot of public.orders", done=done, total=total)
    pipeline = PipelineStatus(
        id="sources.orders", connector="c", state=PipelineState.RUNNING, progress=progress
    )
    return Status(pid=1, file="f", started_at=0, updated_at=0, pipelines=(pipeline,))


def shown(monkeypatch: pytest.MonkeyPatch, terminal: io.StringIO, *, quiet: bool) -> str:
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with PipelineProgressBars(quiet=quiet) as bars:
        for done in (0, 250, 500, 1_000):
            bars.show(status(done, 1_000))
        bars.show(status(5, None))
    return terminal.getvalue()


def test_a_snapshot_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "snapshot of public.orders" in shown(monkeypatch, Terminal(), quiet=False)


def test_nothing_is_drawn_into_files_or_when_asked_to_be_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown(monkeypatch, io.StringIO(), quiet=False) == ""
    assert shown(monkeypatch, Terminal(), quiet=True) == ""
