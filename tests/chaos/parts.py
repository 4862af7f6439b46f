"""Long suites in parts that are remembered: an interrupted run goes on where it stopped.

The parts that passed stand in a state file until all have; a run that is complete is over, and the
next one begins again.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Whether it passed, and what there is to say about it.
Verdict = tuple[bool, str]
Part = Callable[[], Verdict]


def run_parts(
    parts: Mapping[str, Part], state_path: Path, *, fresh: bool, say: Callable[[str], None]
) -> int:
    """Run what has not passed before, in order; the exit status is returned."""
    passed = {} if fresh else load(state_path)
    failures = 0
    for name, part in parts.items():
        if name in passed:
            say(f"{name}: done before: {passed[name]}")
            continue
        is_sound, words = part()
        say(f"{name}: {words}")
        if is_sound:
            passed[name] = words
            save(state_path, passed)
        else:
            failures += 1
    if not failures:
        state_path.unlink(missing_ok=True)
    return 1 if failures else 0


def say(line: str) -> None:
    """To whoever watches, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def load(path: Path) -> dict[str, Any]:
    """What has passed, with what there was to say about it."""
    if not path.exists():
        return {}
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def save(path: Path, passed: Mapping[str, object]) -> None:
    """Keep what has passed, all of it or what was kept before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_path = path.with_suffix(".partial")
    partial_path.write_text(json.dumps(passed, indent=1))
    partial_path.replace(path)
