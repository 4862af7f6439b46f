"""What Spark's Java is started with."""

from pathlib import Path

import pytest

from mainstem.pipelines.spark.java import quick_fork_flags
from mainstem.pipelines.spark.session import SparkSettings, spark_options

FLAGS = "spark.driver.extraJavaOptions"
SERIAL = "-XX:+UseSerialGC"


@pytest.mark.parametrize(
    ("release", "is_known"),
    [
        ('IMPLEMENTOR="x"\nJAVA_VERSION="17.0.15"\n', True),
        ('JAVA_VERSION="21"\n', True),
        ('JAVA_VERSION="25.0.1"\n', False),
        ("", False),
    ],
)
def test_the_quick_way_to_start_programs_is_asked_of_a_java_that_has_it(
    tmp_path: Path, release: str, is_known: bool
) -> None:
    (tmp_path / "release").write_text(release)
    assert bool(quick_fork_flags(tmp_path)) is is_known


def test_nothing_is_asked_of_a_java_that_does_not_say_what_it_is(tmp_path: Path) -> None:
    assert quick_fork_flags(tmp_path) == []


@pytest.mark.parametrize(
    ("master", "is_serial"),
    [("local[2]", True), ("local[1]", True), ("local[8]", False), ("spark://host:7077", False)],
)
def test_few_cores_share_them_with_no_collector(
    tmp_path: Path, master: str, is_serial: bool
) -> None:
    options = spark_options(SparkSettings(master=master), tmp_path)
    assert (SERIAL in options.get(FLAGS, "")) is is_serial
    assert ("-Xms256m" in options.get(FLAGS, "")) is is_serial
