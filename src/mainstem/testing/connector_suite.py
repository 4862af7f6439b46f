"""Test suites that every connector inherits, built-in ones and those of other packages.

    class TestCrmSource(SourceSuite):
        connector = crm.SOURCE
        rows = 25

        def config(self, tmp_path: Path) -> dict[str, object]:
            return {"url": ...}

Inherit ``SourceSuite`` or ``SinkSuite`` in a test module and provide a fixture ``spark``: a session
whose workers can import the connector. A suite checks the contract of a connector on which the
runtime relies; ``mainstem.pipelines.connector.shapes`` describes it.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from mainstem.pipelines.connector.shapes import ConnectorContext, FindingSeverity
from mainstem.pipelines.connector.spec import DeliveryGuarantee
from mainstem.pipelines.connector.wire import WIRE_TYPES, as_wire, is_wire
from mainstem.pipelines.connectors.datagen import SOURCE as DATAGEN
from mainstem.pipelines.connectors.datagen import DatagenConfig
from mainstem.pipelines.file.secrets import Secrets
from mainstem.pipelines.file.validation import fit, secrets_in

SECRET_NAME = re.compile(r"passw|secret|token|credential|api_?key|private_key", re.IGNORECASE)
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
SINK_ROWS = 20


class ConnectorSuite:
    """Tests of sources and sinks."""

    connector: ClassVar[Any]  # a Source or a Sink

    def config(self, tmp_path: Path) -> dict[str, object]:
        """Valid settings, as in a pipeline file."""
        raise AssertionError(f"{type(self).__name__} has to define config")

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        """Well-formed settings that fail, such as a wrong password; None if there are none."""
        del tmp_path
        return None

    def loaded(self, raw: dict[str, object]) -> Any:
        """The parsed settings, as passed to the connector."""
        config, mismatches = fit(raw, self.connector.spec().config, "config")
        assert not mismatches, [str(each.problem) for each in mismatches]
        return config

    def test_the_spec_is_complete(self) -> None:
        """Name, title and settings schema are defined, and every library has an extra."""
        spec = self.connector.spec()
        assert NAME.fullmatch(spec.name)
        assert spec.title
        assert spec.kind in {"source", "sink"}
        assert bool(spec.modules) <= bool(spec.extra), "an extra has to install the libraries"
        assert spec.config.__struct_config__.forbid_unknown_fields

    def test_every_setting_is_described_in_the_schema(self) -> None:
        """The JSON Schema is complete enough to show to users."""
        schema = json.loads(json.dumps(self.connector.spec().schema()))
        described = schema["$defs"][self.connector.spec().config.__name__]["properties"]
        assert not [name for name, each in described.items() if not _has_description(each)]

    def test_an_unknown_setting_is_refused(self, tmp_path: Path) -> None:
        """A misspelt key is reported, not ignored."""
        raw = {**self.config(tmp_path), "no_such_setting": 1}
        _, mismatches = fit(raw, self.connector.spec().config, "config")
        assert [each.problem.path for each in mismatches] == ["config.no_such_setting"]

    def test_secrets_are_marked_as_secrets(self, tmp_path: Path) -> None:
        """A password is hidden wherever settings are shown."""
        raw = self.config(tmp_path)
        hidden = set(secrets_in(self.loaded(raw)))
        named = {str(value) for name, value in raw.items() if SECRET_NAME.search(name)}
        assert named <= hidden

    def test_a_check_of_working_settings_finds_no_error(self, tmp_path: Path) -> None:
        """The check returns at least one result, and no errors."""
        found = self.connector.check(self.loaded(self.config(tmp_path)))
        assert found
        assert not [each for each in found if each.severity is FindingSeverity.ERROR]

    def test_a_check_of_broken_settings_says_what_is_wrong(self, tmp_path: Path) -> None:
        """The check reports errors instead of raising, and reveals no secret."""
        raw = self.broken_config(tmp_path)
        if raw is None:
            return
        config = self.loaded(raw)
        errors = [
            each for each in self.connector.check(config) if each.severity is FindingSeverity.ERROR
        ]
        assert errors
        secrets = Secrets()
        for secret in secrets_in(config):
            secrets.add(secret)
        for each in errors:
            assert secrets.redact(each.message) == each.message


class SourceSuite(ConnectorSuite):
    """Tests of sources. ``rows`` is the number of records that the settings produce."""

    rows: ClassVar[int]
    rows_per_batch_max: ClassVar[int] = 7

    def place(self, tmp_path: Path) -> ConnectorContext:
        """A location with a batch limit small enough for several batches."""
        limit = self.rows_per_batch_max if self.connector.spec().limits_rows else None
        return ConnectorContext(
            pipeline="sources.suite",
            state_dir=tmp_path / "connector",
            rows_per_batch_max=limit,
            topic="suite",
        )

    def test_discover_names_what_can_be_read(self, tmp_path: Path) -> None:
        """Each discovered item has a unique name and settings that select it."""
        found = self.connector.discover(self.loaded(self.config(tmp_path)))
        names = [each.name for each in found]
        assert len(names) == len(set(names))
        known = {field.encode_name for field in _fields(self.connector)}
        assert all(set(each.config) <= known for each in found)

    def test_every_record_arrives_once_in_batches_of_the_bound(
        self, spark: Any, tmp_path: Path
    ) -> None:
        """Several batches, none too large, all records."""
        batches = self._run(spark, tmp_path)
        assert sum(map(len, batches)) == self.rows
        if self.connector.spec().limits_rows:
            assert max(map(len, batches)) <= self.rows_per_batch_max

    def test_a_restart_goes_on_where_it_was(self, spark: Any, tmp_path: Path) -> None:
        """A second run on the same checkpoint returns no record again."""
        self._run(spark, tmp_path)
        assert sum(map(len, self._run(spark, tmp_path))) == 0

    def test_a_batch_that_is_repeated_is_the_same(self, spark: Any, tmp_path: Path) -> None:
        """As after a crash between the sink's write and Spark's commit."""
        before = [batch for batch in self._run(spark, tmp_path) if batch]
        forget_last_commit(tmp_path / "checkpoint")
        [again] = [batch for batch in self._run(spark, tmp_path) if batch]
        assert Counter(again) == Counter(before[-1])

    def _run(self, spark: Any, tmp_path: Path) -> list[list[bytes]]:
        config = self.loaded(self.config(tmp_path))
        frame = self.connector.read(spark, config, self.place(tmp_path))
        assert frame.isStreaming
        if is_wire(frame):
            assert set(frame.columns) <= set(WIRE_TYPES)
        batches: list[list[bytes]] = []

        def take(batch: Any, batch_id: int) -> None:
            del batch_id
            batches.append([bytes(row.value or b"") for row in batch.collect()])

        run_once(as_wire(frame, topic="suite").writeStream.foreachBatch(take), tmp_path)
        return batches


class SinkSuite(ConnectorSuite):
    """Tests of sinks."""

    def written(self, tmp_path: Path) -> list[bytes]:
        """The values that the target contains now, in any order."""
        raise AssertionError(f"{type(self).__name__} has to return what was written")

    def test_every_record_arrives(self, spark: Any, tmp_path: Path) -> None:
        """All records of several batches are written."""
        expected = self._run(spark, tmp_path)
        assert Counter(self.written(tmp_path)) == Counter(expected)

    def test_a_batch_that_is_repeated_arrives_as_often_as_promised(
        self, spark: Any, tmp_path: Path
    ) -> None:
        """As after a crash between the sink's write and Spark's commit."""
        expected = Counter(self._run(spark, tmp_path))
        forget_last_commit(tmp_path / "checkpoint")
        self._run(spark, tmp_path)
        found = Counter(self.written(tmp_path))
        if self.connector.spec().delivery is DeliveryGuarantee.EXACTLY_ONCE:
            assert found == expected
        else:
            assert set(found) == set(expected)

    def _run(self, spark: Any, tmp_path: Path) -> list[bytes]:
        config = self.loaded(self.config(tmp_path))
        context = ConnectorContext(pipeline="sinks.suite", state_dir=tmp_path / "connector")
        made = DatagenConfig(kind="numbers", count=SINK_ROWS, rows_per_second=None)
        feeding = ConnectorContext(
            pipeline="sinks.suite",
            state_dir=tmp_path / "feeding",
            rows_per_batch_max=SINK_ROWS // 2,
        )
        frame = as_wire(DATAGEN.read(spark, made, feeding), topic="suite")
        run_once(self.connector.write(frame, config, context), tmp_path)
        batch = DATAGEN.read(spark, made, msgspec.structs.replace(feeding, streaming=False))
        return [bytes(row.value) for row in batch.collect()]


def run_once(writer: Any, tmp_path: Path) -> None:
    """Run a writer until all available input is processed."""
    located = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    located.trigger(availableNow=True).start().awaitTermination()


def forget_last_commit(checkpoint: Path) -> None:
    """Leave a checkpoint as after a crash between the sink's write and the commit."""
    commits = [path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
    last = max(commits, key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def _has_description(schema: dict[str, Any]) -> bool:
    inner = [*schema.get("anyOf", []), schema]
    return any("description" in each or "$ref" in each for each in inner)


def _fields(connector: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(connector.spec().config)
