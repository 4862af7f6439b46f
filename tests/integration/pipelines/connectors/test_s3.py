"""Buckets of two different S3 servers: the suite, kills at every moment, wrong keys."""

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet as pq
from tests.integration.pipelines.connectors.s3_servers import PINS, S3Server, environment

from mainstem.model.errors import InvalidRequest
from mainstem.pipelines.connector.batches import BatchIdentity
from mainstem.pipelines.connector.shapes import ConnectorContext, FindingSeverity
from mainstem.pipelines.connectors import s3
from mainstem.pipelines.object_store.bucket import Bucket, BucketSettings
from mainstem.pipelines.object_store.sink import FileLayout, write_batch
from mainstem.testing.connector_suite import SinkSuite, SourceSuite

pytestmark = pytest.mark.timeout(240)

KEYS: dict[str, Any] = {"access_key_id": "testing-key", "secret_access_key": "testing-secret"}


@pytest.fixture(scope="module", params=sorted(PINS))
def server(request: pytest.FixtureRequest) -> Iterator[S3Server]:
    with S3Server(request.param, environment(request.param)) as running:
        yield running


@pytest.fixture
def bucket(server: S3Server) -> Bucket:
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    server.make_bucket(name)
    return Bucket(BucketSettings(bucket=name, prefix="lake", endpoint=server.url, **KEYS))


def visible(bucket: Bucket) -> list[str]:
    return sorted(each.path for each in bucket.files("") if not each.path.startswith("_"))


def settings_of(bucket: Bucket) -> dict[str, object]:
    given = bucket.settings
    return {"bucket": given.bucket, "prefix": "lake", "endpoint": given.endpoint, **KEYS}


class TestS3Sink(SinkSuite):
    connector = s3.SINK

    @pytest.fixture(autouse=True)
    def _bucket(self, bucket: Bucket) -> None:
        self.bucket = bucket

    def config(self, tmp_path: Path) -> dict[str, object]:
        return settings_of(self.bucket)

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        return {**self.config(tmp_path), "bucket": "no-such-bucket"}

    def written(self, tmp_path: Path) -> list[bytes]:
        found: list[bytes] = []
        for path in visible(self.bucket):
            with self.bucket.reader(path) as file:
                found += pq.read_table(file)["value"].to_pylist()
        return found


class TestS3Source(SourceSuite):
    connector = s3.SOURCE
    rows = 25

    @pytest.fixture(autouse=True)
    def _bucket(self, bucket: Bucket) -> None:
        self.bucket = bucket
        for name, low, until in (("a", 0, 10), ("b", 10, 20), ("c/d", 20, 25)):
            lines = [f'{{"n":{n}}}\n' for n in range(low, until)]
            bucket.create(f"{name}.json", "".join(lines).encode())

    def config(self, tmp_path: Path) -> dict[str, object]:
        return {**settings_of(self.bucket), "format": "json", "files_per_batch": 2, "key": "n"}

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        return {**self.config(tmp_path), "endpoint": "http://127.0.0.1:9", "retries": 0}


class Killed(Exception):
    """The process ends here."""


class FrailBucket(Bucket, frozen=True):
    """A bucket whose process is killed when files are ``staged``, ``decided`` or ``moving``."""

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


def layout(bucket: Bucket) -> FileLayout:
    return FileLayout(store=bucket, format="json", schema=None, compression="none")


def test_batches_that_were_killed_midway_are_there_once_when_they_are_repeated(
    spark: Any, tmp_path: Path, bucket: Bucket
) -> None:
    context = ConnectorContext(pipeline="p", state_dir=tmp_path)
    for number, moment in enumerate(("staged", "decided", "moving")):
        batch = BatchIdentity("query", number)
        frail = layout(FrailBucket(bucket.settings, moment))
        with pytest.raises(Killed):
            write_batch(values(spark, partitions=3), batch, frail, context)
        # The same records, cut in another way, and once more.
        write_batch(values(spark, partitions=2), batch, layout(bucket), context)
        write_batch(values(spark, partitions=1), batch, layout(bucket), context)

    lines: list[bytes] = []
    for path in visible(bucket):
        with bucket.reader(path) as file:
            lines += file.read().splitlines()
    assert Counter(lines) == Counter(f'{{"n":{n}}}'.encode() for n in range(30) for _ in range(3))
    assert not list(bucket.files("_mainstem/staging"))


def test_an_unknown_bucket_is_named_and_keys_are_not(bucket: Bucket, server: S3Server) -> None:
    wrong = Bucket(BucketSettings(bucket="no-such-bucket", endpoint=server.url, **KEYS))
    for attempt in (
        lambda: list(wrong.files("")),
        lambda: wrong.create("a", b""),
        lambda: wrong.read("a"),
    ):
        with pytest.raises(InvalidRequest, match="bucket no-such-bucket does not exist"):
            attempt()


def test_the_digits_of_a_port_are_no_status(bucket: Bucket) -> None:
    error = OSError("http://127.0.0.1:40371/a: 404 Not Found: NoSuchBucket")
    assert "does not exist" in str(bucket.refusal(error, "a"))


def test_a_missing_library_is_an_error_that_names_the_extra(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config = s3.S3SinkConfig(bucket="b")
    frame = values(spark, partitions=1)
    with pytest.raises(InvalidRequest, match=r"pip install 'mainstem\[s3\]'"):
        s3.SINK.write(frame, config, ConnectorContext(pipeline="p", state_dir=tmp_path))


def test_a_refused_key_is_told(bucket: Bucket) -> None:
    error = PermissionError("403 Forbidden: SignatureDoesNotMatch testing-secret")
    refused = bucket.refusal(error, "a")
    assert "refuses these keys" in str(refused)
    assert "testing-secret" not in str(refused)
    assert not refused.retriable
    config = s3.S3SinkConfig(**settings_of(bucket))  # type: ignore[arg-type]
    assert s3.SINK.check(config)[0].severity is FindingSeverity.WARNING
