"""Named points at which a pipeline under test stops, so that everything can be killed just there.

The harness writes a *plan*: for each pipeline the point where it is to stand still. The connect
process under test (``frail_job``) says at every point where it is; a pipeline that has come to its
own leaves a note and sleeps until it is killed. So one kill hits every pipeline at a chosen moment.

    plan.json  {"sinks.lake": "staged", ...}         reached/sinks.lake  "staged"

Pipelines are told apart by their query's id, which Spark keeps in their checkpoint, because that is
what code in Spark's worker processes knows.
"""

import json
import os
import time
from pathlib import Path
from typing import Final, NoReturn

FOLDER_VARIABLE: Final = "MAINSTEM_TEST_POINTS"  # read by the job under test only

# The last point of each is the one between the sink's write and Spark's commit.
TOPIC: Final = ("prepared", "unrecorded", "recorded", "committed")
FILES: Final = ("given", "staged", "decided", "moving", "moved", "written")
TABLE: Final = ("given", "applied", "noted", "written")
DELTA: Final = ("given", "reading", "written")
ICEBERG: Final = ("given", "reading", "looked", "written")
WEBHOOK: Final = ("given", "sending", "written")


class Plan:
    """The harness's side: where each pipeline is to stand still, and which of them do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "plan.json"
        self._reached = folder / "reached"

    def set(self, wanted: dict[str, str]) -> None:
        """From now on."""
        self._reached.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(wanted))
        fresh.rename(self._path)

    def clear(self) -> None:
        """Nobody stands still any more."""
        self._path.unlink(missing_ok=True)
        for note in self._reached.glob("*"):
            note.unlink()

    def reached(self) -> dict[str, str]:
        """Who stands where."""
        return {note.name: note.read_text() for note in self._reached.glob("s*")}


def reach(query_id: str, point: str) -> None:
    """A query is at a point; returns unless the plan wants it to stand still here."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    try:
        wanted: dict[str, str] = json.loads((folder / "plan.json").read_text())
    except FileNotFoundError:
        return
    pipeline = _pipeline_of(query_id, folder.parent / "state")
    if wanted.get(pipeline) == point:
        (folder / "reached" / pipeline).write_text(point)
        _sleep_for_ever()


def _pipeline_of(query_id: str, state: Path) -> str:
    for metadata in state.glob("*/*/checkpoint/metadata"):
        if json.loads(metadata.read_text())["id"] == query_id:
            kind, name = metadata.parts[-4:-2]
            return f"{kind}.{name}"
    return ""


def _sleep_for_ever() -> NoReturn:
    while True:
        time.sleep(3600)
