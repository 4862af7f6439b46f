"""Jars through Maven: what a committed ``pom.xml`` names, resolved once into the cache.

Promises: the repository is whatever the user's Maven settings say; a folder of the cache is either
complete or absent; a changed ``pom.xml`` gets a new folder.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "java"
RESOLVE_TIMEOUT_S = 900
# For a process that ends within the minute the second compiler does not earn back its cost.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Unavailable(RuntimeError):
    """A tool or a registry that a suite needs cannot be used here."""


def jars(pom: Path) -> Path:
    """The folder that holds every jar which ``pom`` needs at run time."""
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    folder = CACHE / f"{pom.parent.name}-{digest}"
    if folder.is_dir():
        return folder
    if shutil.which("mvn") is None:
        raise Unavailable("mvn is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        complete = Path(scratch) / "jars"
        command = ["mvn", "--quiet", "--batch-mode", "--no-transfer-progress", "--file", str(pom)]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-DoutputDirectory={complete}"]
        flags = " ".join([*SHORT_LIVED, os.environ.get("MAVEN_OPTS", "")])
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=os.environ | {"MAVEN_OPTS": flags},
            timeout=RESOLVE_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"Maven could not resolve {pom.name}: {done.stdout[-600:]}")
        # Two suites may resolve at once; whoever comes second keeps the first one's folder.
        if not folder.exists():
            complete.rename(folder)
    return folder


def classpath(pom: Path) -> str:
    """The same folder as Java's ``-cp`` wants it."""
    return f"{jars(pom)}/*"


def compiled_classpath(source: Path, pom: Path) -> str:
    """What Java's ``-cp`` wants for a source file of ours, compiled once, and its jars."""
    digest = hashlib.sha256(source.read_bytes() + pom.read_bytes()).hexdigest()[:12]
    folder = CACHE / f"{source.stem.lower()}-{digest}"
    if not folder.is_dir():
        if shutil.which("javac") is None:
            raise Unavailable("javac is not installed")
        path = classpath(pom)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            compiled = Path(scratch) / "classes"
            command = ["javac", *(f"-J{flag}" for flag in SHORT_LIVED)]
            command += ["-cp", path, "-d", str(compiled), str(source)]
            subprocess.run(command, check=True)
            # As with jars: whoever comes second keeps the first one's folder.
            if not folder.exists():
                compiled.rename(folder)
    return f"{folder}{os.pathsep}{classpath(pom)}"
