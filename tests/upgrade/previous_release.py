"""The previous release, taken from this repository's history and made ready to be run.

``previous_release.txt`` names its commit. The sources are put into a cache folder of the user, with
its extension compiled where there is a compiler; it runs in the environment of the tests.
"""

import fcntl
import io
import os
import shutil
import subprocess
import sysconfig
import tarfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
COMMIT = (HERE / "previous_release.txt").read_text().strip()
CURRENT = HERE.parents[1] / "src"
TIMEOUT_S = 300


def why_missing() -> str | None:
    """Why the previous release cannot be made ready here; None when it can."""
    if _cached().exists():
        return None
    if shutil.which("git") is None:
        return "git not installed"
    asked = _git("cat-file", "-e", f"{COMMIT}^{{commit}}")
    if asked.returncode:
        return f"commit {COMMIT} is not in this clone (git fetch --unshallow)"
    return None


@cache
def previous_release() -> Path:
    """The folder to put on Python's path."""
    folder = _cached()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{COMMIT}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            draft = folder.with_name(f"{COMMIT}.new")
            shutil.rmtree(draft, ignore_errors=True)
            archive = _git("archive", COMMIT, "src")
            assert archive.returncode == 0, archive.stderr
            with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
                files.extractall(draft)
            _compile(draft / "src" / "mainstem" / "model")
            draft.rename(folder)
    return folder / "src"


def _cached() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "mainstem-tests" / COMMIT


def _git(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    command = ["git", "-C", str(HERE.parents[1]), *arguments]
    return subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)


def _compile(model: Path) -> None:
    """Compile the extension; as in an installation, the release runs without it too."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return
    sources = [str(path) for path in sorted((model / "native").glob("*.c"))]
    built = model / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = sysconfig.get_paths()["include"]
    command = [compiler, "-O2", "-shared", "-fPIC", f"-I{include}", *sources, "-o", str(built)]
    subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
