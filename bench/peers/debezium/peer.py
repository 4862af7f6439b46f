"""Debezium's engine as a peer: its jars through Maven, its Java side compiled once."""

from pathlib import Path

from bench.peers.maven import compiled_classpath

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
SOURCE = HERE / "Follow.java"
# As much memory as our driver has.
JVM = ("-Xmx1g", "-Duser.timezone=UTC")


def command(folder: Path) -> list[str]:
    """How the engine is started; it keeps its offsets in the folder."""
    return ["java", *JVM, "-cp", compiled_classpath(SOURCE, POM), "Follow", str(folder)]
