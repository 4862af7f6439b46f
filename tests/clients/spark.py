"""Spark's own Kafka source and sink (``spark-sql-kafka-0-10``) against a server.

Spark lives in a virtual environment of its own in the cache (half a gigabyte), its Kafka jars come
through Maven.
"""

import json
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

from bench.peers.maven import ROOT, Unavailable, jars
from tests.clients.scenarios import Scenario, Scene

HERE = Path(__file__).parent / "drivers" / "spark"
ENVIRONMENT = ROOT / ".cache" / "spark-venv"
NEEDS = ("java", "maven")
ROWS = 1_000
JOB_TIMEOUT_S = 300
# What pyspark brings itself must not be there twice.
OWN = ("hadoop", "scala-library", "slf4j", "jsr305", "lz4", "snappy", "spark-tags", "scala-par")


def copies_in_batches_and_streams(scene: Scene) -> None:
    """Rows written by Spark come back whole, by time, and through a resumed stream, once each."""
    topics = [f"{scene.topic}-{name}" for name in ("source", "batch", "stream")]
    for topic in topics:
        scene.oracle.create(topic, 3)
    folder = scene.scratch / f"{scene.prefix}-spark"
    folder.mkdir()
    command = [str(python()), str(HERE / "job.py"), scene.server.kafka, *topics]
    command += [str(folder), str(ROWS), ",".join(map(str, kafka_jars()))]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    once, twice = _expected(ROWS), _expected(2 * ROWS)
    assert seen["source"] == once, seen
    assert seen["batch"] == once, seen
    assert seen["stream_first"] == ROWS, seen
    assert seen["stream"] == twice, seen
    since, wanted = seen["since"]
    assert since == wanted, f"{since} rows since the middle of the time, {wanted} expected"
    _check_contents(scene, topics[2])


def python() -> Path:
    """The interpreter of Spark's environment, made on first use."""
    found = ENVIRONMENT / "bin" / "python"
    ready = ENVIRONMENT / ".ready"
    wanted = (HERE / "requirements.txt").read_text()
    if ready.exists() and ready.read_text() == wanted:
        return found
    subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    install = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*install, "--requirement", str(HERE / "requirements.txt")], check=False)
    if done.returncode:
        raise Unavailable("pyspark could not be installed")
    ready.write_text(wanted)
    return found


def kafka_jars() -> list[Path]:
    """Spark's Kafka source and what it needs beyond Spark."""
    return sorted(
        path for path in jars(HERE / "pom.xml").iterdir() if not path.name.startswith(OWN)
    )


def _expected(count: int) -> list[int]:
    contents = (f"key-{number % 100}|value-{number}|number|{number}" for number in range(count))
    return [count, count, sum(zlib.crc32(content.encode()) for content in contents)]


def _check_contents(scene: Scene, topic: str) -> None:
    """Another client reads what Spark streamed."""
    group = f"{scene.prefix}-after-spark"
    reader = replace(scene, prefix=group)
    errand = replace(reader.errand("consume"), topic=topic, count=2 * ROWS)
    reader.client.run(errand)
    values = {json.loads(line)[4] for line in Path(errand.output).read_text().splitlines()}
    assert len(values) == 2 * ROWS


SCENARIOS: dict[str, Scenario] = {
    copies_in_batches_and_streams.__name__: copies_in_batches_and_streams
}
