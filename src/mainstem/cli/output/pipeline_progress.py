"""Progress bars of pipelines with a known end, such as a snapshot. Terminals only."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from mainstem.pipelines.running.status import Status


class PipelineProgressBars:
    """One bar per pipeline while it has something to count down. A context manager."""

    def __init__(self, *, quiet: bool) -> None:
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        if not quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Shown

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._progress = Shown(*columns, console=Console(stderr=True), transient=True)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, status: "Status") -> None:
        """Update the bars; remove those whose work is done."""
        if self._progress is None:
            return
        for pipeline in status.pipelines:
            progress = pipeline.progress
            if progress is None or progress.total is None:
                continue
            task = self._tasks.get(pipeline.id)
            if progress.is_complete:
                if task is not None:
                    self._progress.remove_task(task)
                    del self._tasks[pipeline.id]
                continue
            if task is None:
                text = f"{pipeline.id}: {progress.what}"
                task = self._tasks[pipeline.id] = self._progress.add_task(text)
            self._progress.update(task, completed=progress.done, total=progress.total)
