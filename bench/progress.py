"""Samples as they come, kept on disk, so that a run that was cut short can be taken up again."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.figures import Figure

RESULTS = Path(__file__).parent / "results"
UNFINISHED = RESULTS / "unfinished.json"


class Samples:
    """Figures by name and side.

    Args:
        path: where they are kept while the run goes on; None keeps them nowhere.
        resume: take up what an earlier run left there.
    """

    def __init__(self, path: Path | None = None, *, resume: bool = False) -> None:
        self._path = path
        self._found: dict[str, dict[str, list[Figure]]] = defaultdict(lambda: defaultdict(list))
        if resume and path is not None and path.exists():
            for name, by_side in json.loads(path.read_text()).items():
                for title, figures in by_side.items():
                    self._found[name][title] = [Figure(**each) for each in figures]

    def has(self, name: str, title: str, number: int) -> bool:
        """Whether the round of that number, from 0, was measured already."""
        return len(self._found.get(name, {}).get(title, ())) > number

    def add(self, name: str, title: str, figure: Figure) -> None:
        """Notes one more."""
        self._found[name][title].append(figure)
        if self._path is not None:
            self._path.parent.mkdir(exist_ok=True)
            self._path.write_text(json.dumps(self.plain(set(self._found))))

    def plain(self, wanted: set[str]) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """What is there of some figures, as JSON has it."""
        return {
            name: {title: [vars(figure) for figure in figures] for title, figures in sides.items()}
            for name, sides in self._found.items()
            if name in wanted
        }

    def finish(self) -> None:
        """The run has come to its end."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
