"""Large values in an object store: what is stored, what stands in their place."""

import base64
import hashlib
from pathlib import Path

from pyspark.sql import SparkSession
from tests.integration.pipelines.transforms.outcomes import Out, Record, outcomes, step
from tests.integration.pipelines.transforms.test_step_cases import CREATED

BIG = "x" * 50


def test_large_values_are_stored_and_referred_to(spark: SparkSession, tmp_path: Path) -> None:
    stored = step("externalize_blob", provider="local", bucket=str(tmp_path), size_threshold=50)
    values = [
        f'{{"id":1,"doc":"{BIG}"}}',
        f'{{"id":1.10,"doc":"{BIG[1:]}"}}',
        f'{{"tree":["{BIG}"]}}',
        CREATED.replace('"s":"x"', f'"s":"{BIG}"'),
        None,
        "{bad",
    ]
    # Twice, as after a failure: objects are named by their content.
    outcomes(spark, [stored], [Record(value) for value in values])
    doc, small, tree, change, tombstone, bad = (
        out
        for out in outcomes(spark, [stored], [Record(value) for value in values])
        if isinstance(out, Out)
    )
    digest = hashlib.sha256(BIG.encode()).hexdigest()
    reference = {
        "__externalized": True,
        "url": f"file://{tmp_path}/t/doc/{digest}.bin",
        "size": 50,
        "content_type": "text/plain; charset=utf-8",
        "sha256": digest,
    }
    assert doc.json == {"id": 1, "doc": reference}
    assert small.text == values[1]
    assert tree.json["tree"]["content_type"] == "application/json"
    assert change.json["after"]["s"]["url"].endswith(f"/users/s/{digest}.bin")
    assert (tombstone.value, bad.error) == (None, "the value is not JSON")
    files = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.bin"))
    assert [str(path.parent) for path in files] == ["t/doc", "t/tree", "users/s"]
    assert (tmp_path / files[0]).read_text() == BIG
    assert (tmp_path / files[1]).read_text() == f'["{BIG}"]'


def test_only_the_named_fields_are_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    stored = step(
        "externalize_blob",
        {"topic": "docs"},
        provider="local",
        bucket=str(tmp_path),
        prefix="in/blobs/",
        fields=["a.body", "none"],
        size_threshold=10,
        encoding="base64",
    )
    body = base64.b64encode(bytes(range(64))).decode()
    value = f'{{"a":{{"body":"{body}"}},"other":"{body}"}}'
    records = [Record(value, topic="docs"), Record(value)]
    found, left = (out for out in outcomes(spark, [stored], records) if isinstance(out, Out))
    assert left.text == value
    assert found.json["other"] == body
    reference = found.json["a"]["body"]
    assert (reference["size"], reference["content_type"]) == (64, "application/octet-stream")
    file = Path(reference["url"].removeprefix("file://"))
    assert file.parent == tmp_path / "in/blobs/docs/a.body"
    assert file.read_bytes() == bytes(range(64))
