"""Runs the tests that must notice each mutant: ``python tests/mutants/run.py [part of a name …]``.

Each mutant runs in a process of its own, forked before anything of Raft is imported; the source is
changed on its way into the interpreter and never on disk. Prints one line of JSON for each.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import hypothesis  # noqa: F401 - imported once, before the forks
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.mutants.mutants import MUTANTS, Mutant  # noqa: E402


class _Changed(importlib.abc.MetaPathFinder):
    """Finds one module with another text."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = mutant.full_module
        self._mutant = mutant

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(name, spec.origin, self._mutant)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, mutant: Mutant) -> None:
        super().__init__(name, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        text = Path(self.path).read_text()
        assert text.count(self._mutant.before) == 1, "the mutant's text is not there once"
        return compile(text.replace(self._mutant.before, self._mutant.after), self.path, "exec")


def stale(mutant: Mutant) -> bool:
    """Whether the source has moved on from what the mutant changes."""
    path = ROOT / "src" / Path(*mutant.full_module.split("."))
    return path.with_suffix(".py").read_text().count(mutant.before) != 1


def attempt(mutant: Mutant) -> int:
    """Run the killer against the mutant, in a child; pytest's exit code."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    code = 70
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        sys.meta_path.insert(0, _Changed(mutant))
        options = ["-x", "-q", "-p", "no:cacheprovider", "--timeout=60", f"--rootdir={ROOT}"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        code = int(pytest.main([*options, f"-c{ROOT / 'pyproject.toml'}", str(mutant.killer)]))
    finally:
        os._exit(code)


def main(wanted: list[str]) -> int:
    """Try every mutant whose name contains one of the words; how many survived."""
    os.chdir(ROOT)
    survivors = 0
    for mutant in MUTANTS:
        if wanted and not any(word in mutant.name for word in wanted):
            continue
        begun = time.monotonic()
        code = -1 if stale(mutant) else attempt(mutant)
        killed = code == pytest.ExitCode.TESTS_FAILED
        survivors += not killed
        line = {
            "mutant": mutant.name,
            "killed": killed,
            "exit_code": code,
            "killer": mutant.killer,
            "seconds": round(time.monotonic() - begun, 1),
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return survivors


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
