"""Folders of files: the suite for every format, kills between write and commit, a full disk."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet as pq

from mainstem.model.errors import Fenced, InvalidRequest, Unavailable
from mainstem.pipelines.connector.batches import BatchIdentity
from mainstem.pipelines.connector.shapes import ConnectorContext, FindingSeverity
from mainstem.pipelines.connectors import avro, file, parquet
from mainstem.pipelines.connectors import csv as csv_connector
from mainstem.pipelines.connectors import json as json_connector
from mainstem.pipelines.object_store.sink import FileLayout, write_batch
from mainstem.pipelines.object_store.stores import FolderStore
from mainstem.testing.connector_suite import SinkSuite, SourceSuite

pytestmark = pytest.mark.timeout(180)


def visible(folder: Path) -> list[Path]:
    """What somebody sees who lists the folder."""
    return sorted(path for path in folder.iterdir() if path.name[0] not in "._")


class FolderSinkSuite(SinkSuite):
    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        blocked = tmp_path / "a-file"
        blocked.write_text("")
        return {**self.config(tmp_path), "path": str(blocked / "below")}


class TestParquetSink(FolderSinkSuite):
    connector = parquet.SINK

    def config(self, tmp_path: Path) -> dict[str, object]:
        return {"path": str(tmp_path / "out")}

    def written(self, tmp_path: Path) -> list[bytes]:
        tables = [pq.read_table(path) for path in visible(tmp_path / "out")]
        return [value for table in tables for value in table["value"].to_pylist()]


class TestJsonSource(SourceSuite):
    connector = json_connector.SOURCE
    rows = 25

    @pytest.fixture(autouse=True)
    def _filled(self, tmp_path: Path) -> None:
        """Three files, and things that are none."""
        folder = tmp_path / "in" / "below"
        folder.mkdir(parents=True)
        for name, low, until in (("a", 0, 10), ("b", 10, 20), ("c", 20, 25)):
            lines = [f'{{"n":{n}}}\n' for n in range(low, until)]
            (folder / f"{name}.json").write_text("".join(lines))
        (tmp_path / "in" / ".hidden").write_text("not yet whole")

    def config(self, tmp_path: Path) -> dict[str, object]:
        return {"path": str(tmp_path / "in"), "files_per_batch": 1, "key": "n"}

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        return {"path": str(tmp_path / "nowhere")}


FORMATS = [
    ("parquet", "zstd"),
    ("json", "none"),
    ("json", "gzip"),
    ("csv", "zstd"),
    ("avro", "snappy"),
]


@pytest.mark.parametrize(("format_", "compression"), FORMATS)
def test_what_the_sink_writes_the_source_reads(
    spark: Any, tmp_path: Path, format_: Any, compression: Any
) -> None:
    values = [{"n": n, "s": f'text "{n}", ü' if n % 3 else None} for n in range(20)]
    made = [(json.dumps(value).encode(),) for value in values]
    layout = FileLayout(
        store=FolderStore(tmp_path / "out"),
        format=format_,
        schema="n bigint, s string",
        compression=compression,
    )
    write_batch(
        spark.createDataFrame(made, "value binary"),
        BatchIdentity("query", 0),
        layout,
        ConnectorContext(pipeline="p", state_dir=tmp_path),
    )

    source = {"parquet": parquet, "json": json_connector, "csv": csv_connector, "avro": avro}
    config = file.FolderSourceConfig(path=str(tmp_path / "out"), key="n")
    context = ConnectorContext(pipeline="p", state_dir=tmp_path / "state", streaming=False)
    rows = source[format_].SOURCE.read(spark, config, context).collect()

    found = [json.loads(bytes(row.value)) for row in rows]
    if format_ == "csv":  # everything in it is text
        found = [{**each, "n": int(each["n"])} for each in found]
    assert sorted(found, key=lambda each: each["n"]) == values
    assert {bytes(row.key) for row in rows} == {str(n).encode() for n in range(20)}
    assert {row.headers[0]["key"] for row in rows} == {"mainstem.file"}


def test_csv_needs_columns_and_a_compression_has_to_fit(tmp_path: Path) -> None:
    for config in (
        file.FileSinkConfig(path=str(tmp_path), format="csv"),
        file.FileSinkConfig(path=str(tmp_path), format="json", compression="snappy"),
        file.FileSinkConfig(path=str(tmp_path), format="json", schema="no such type"),
    ):
        assert file.SINK.check(config)[0].severity is FindingSeverity.ERROR


class Killed(Exception):
    """The process ends here."""


class FrailFolder(FolderStore, frozen=True):
    """A folder whose process is killed when files are ``staged``, ``decided`` or ``moving``."""

    moment: str = ""

    def create(self, path: str, data: bytes) -> bool:
        if self.moment == "staged":
            raise Killed
        won = super().create(path, data)
        if self.moment == "decided":
            raise Killed
        return won

    def move(self, source: str, target: str) -> None:
        super().move(source, target)
        if self.moment == "moving":
            raise Killed


def values(spark: Any, *, partitions: int) -> Any:
    rows = [(f'{{"n":{n}}}'.encode(),) for n in range(30)]
    return spark.createDataFrame(rows, "value binary").repartition(partitions)


@pytest.mark.parametrize("moment", ["staged", "decided", "moving"])
def test_a_batch_that_was_killed_midway_is_there_once_when_it_is_repeated(
    spark: Any, tmp_path: Path, moment: str
) -> None:
    context = ConnectorContext(pipeline="p", state_dir=tmp_path / "state")
    batch = BatchIdentity("query", 0)
    frail = FileLayout(
        store=FrailFolder(tmp_path / "out", moment), format="json", schema=None, compression="none"
    )
    with pytest.raises(Killed):
        write_batch(values(spark, partitions=3), batch, frail, context)

    whole = FileLayout(
        store=FolderStore(tmp_path / "out"), format="json", schema=None, compression="none"
    )
    # The same records, cut in another way.
    write_batch(values(spark, partitions=2), batch, whole, context)
    write_batch(values(spark, partitions=1), batch, whole, context)

    lines = b"".join(path.read_bytes() for path in visible(tmp_path / "out")).splitlines()
    assert Counter(lines) == Counter(f'{{"n":{n}}}'.encode() for n in range(30))
    assert not list(FolderStore(tmp_path / "out").files("_mainstem/staging"))


def test_a_process_that_is_behind_is_refused(spark: Any, tmp_path: Path) -> None:
    context = ConnectorContext(pipeline="p", state_dir=tmp_path)
    layout = FileLayout(
        store=FolderStore(tmp_path / "o"), format="json", schema=None, compression="none"
    )
    write_batch(values(spark, partitions=1), BatchIdentity("query", 7), layout, context)
    with pytest.raises(Fenced):
        write_batch(values(spark, partitions=1), BatchIdentity("query", 6), layout, context)
    # A fresh checkpoint is another query and counts from zero.
    write_batch(values(spark, partitions=1), BatchIdentity("another", 0), layout, context)
    assert len(visible(tmp_path / "o")) == 2


class Letters:
    def __init__(self) -> None:
        self.rows: list[Any] = []

    def send(self, refused: Any) -> None:
        self.rows += refused.collect()


def test_records_that_fit_no_file_are_dead_letters_and_the_others_arrive(
    spark: Any, tmp_path: Path
) -> None:
    letters = Letters()
    context = ConnectorContext(pipeline="p", state_dir=tmp_path, dead_letters=letters)
    frame = spark.createDataFrame(
        [(b'{"n":\n1}',), (b"not json",), (b"\xff\xfe",), (None,)], "value binary"
    )
    layout = FileLayout(
        store=FolderStore(tmp_path / "o"), format="json", schema=None, compression="none"
    )

    write_batch(frame, BatchIdentity("query", 0), layout, context)

    [written] = visible(tmp_path / "o")
    assert written.read_text() == '{"n": 1}\n'
    assert {bytes(row.value) for row in letters.rows} == {b"not json", b"\xff\xfe"}

    strict = ConnectorContext(pipeline="p", state_dir=tmp_path)
    with pytest.raises(InvalidRequest, match="dead_letter_topic"):
        write_batch(frame, BatchIdentity("query", 1), layout, strict)


def test_a_file_grows_no_larger_than_asked_for(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(60_000).selectExpr("cast(id as string) || repeat('x', 20) as value")
    layout = FileLayout(
        store=FolderStore(tmp_path / "o"),
        format="text",
        schema=None,
        compression="none",
        file_bytes=200_000,
    )
    write_batch(
        frame.selectExpr("cast(value as binary) as value").coalesce(1),
        BatchIdentity("query", 0),
        layout,
        ConnectorContext(pipeline="p", state_dir=tmp_path),
    )
    written = visible(tmp_path / "o")
    assert len(written) > 2
    assert sum(len(path.read_bytes().splitlines()) for path in written) == 60_000


def test_a_broken_file_is_named(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bad.parquet").write_bytes(b"PAR1 no footer")
    context = ConnectorContext(pipeline="p", state_dir=tmp_path / "s", streaming=False)
    config = file.FileSourceConfig(path=str(tmp_path / "in"), format="parquet")
    with pytest.raises(Exception, match=r"INVALID_RECORD \[bad.parquet\]"):
        file.SOURCE.read(spark, config, context).collect()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.needs("root")
def test_a_full_disk_is_told_and_leaves_nothing_half_written(small_disk: Path) -> None:
    folder = FolderStore(small_disk)
    with pytest.raises(Unavailable, match="disk is full"), folder.writer("a/b.json") as out:
        out.write(b"x" * 200_000)
    assert not list(folder.files(""))
    [finding] = file.SINK.check(file.FileSinkConfig(path=str(small_disk)))
    assert finding.severity is FindingSeverity.WARNING
