"""Debezium's engine as a peer: its jars through Maven, its Java side compiled once."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.peers.maven import CACHE, Unavailable, classpath

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
SOURCE = HERE / "Follow.java"
# As much memory as our driver has.
JVM = ("-Xmx1g", "-Duser.timezone=UTC")


def command(folder: Path) -> list[str]:
    """How the engine is started; it keeps its offsets in the folder."""
    path = f"{_classes()}{os.pathsep}{classpath(POM)}"
    return ["java", *JVM, "-cp", path, "Follow", str(folder)]


def _classes() -> Path:
    if shutil.which("javac") is None:
        raise Unavailable("javac is not installed")
    digest = hashlib.sha256(SOURCE.read_bytes() + POM.read_bytes()).hexdigest()[:12]
    folder = CACHE / f"debezium-follow-{digest}"
    if not folder.is_dir():
        path = classpath(POM)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            compiled = Path(scratch) / "classes"
            subprocess.run(["javac", "-cp", path, "-d", str(compiled), str(SOURCE)], check=True)
            if not folder.exists():
                compiled.rename(folder)
    return folder
