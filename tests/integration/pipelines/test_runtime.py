"""Pipelines against a real node: sources, sinks, dead letters, failures, restarts."""

import asyncio
import base64
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import pytest
from pyspark.sql import SparkSession
from tests.integration.pipelines.stage import (
    CollectingSink,
    produce,
    records,
    registry_with,
    running,
)

from mainstem.client.admin import Admin
from mainstem.pipelines.file.loader import read_text
from mainstem.pipelines.running.cases import run_case
from mainstem.pipelines.running.dry_run import dry_run_pipeline
from mainstem.pipelines.running.restart_policy import PipelineState
from mainstem.pipelines.running.status import metrics_text, read_status
from mainstem.pipelines.transforms.plan import STEPS
from mainstem.pipelines.transforms.predicate import StepProblem
from mainstem.pipelines.transforms.rows import Rows, StepContext
from mainstem.pipelines.transforms.step import Step
from mainstem.testing.local_node import LocalNode

pytestmark = pytest.mark.timeout(400)

ROWS = 200


def test_many_pipelines_run_side_by_side_and_one_failure_stays_alone(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path
) -> None:
    kept, flaky, locked = CollectingSink(), CollectingSink(), CollectingSink()
    flaky.failures_left = 2
    locked.is_reachable = False
    text = f"""
version: "1.0"
broker: {{bootstrap_servers: ["{shared_node.kafka}"]}}
sources:
  orders:
    connector: datagen
    topic: rt.orders
    topic_config: {{partitions: 2}}
    dead_letter_topic: rt.orders.dead
    config: {{count: {ROWS}, rows_per_second: null}}
    transforms:
    - {{type: mask_field, config: {{fields: [email]}}}}
    - type: cast
      config: {{specs: {{country: integer}}}}
      predicate: {{field_value: {{field: product, value: anchor}}}}
  misguided: {{connector: datagen, topic: rt.other, config: {{key: no_such_column}}}}
  resting: {{connector: datagen, topic: rt.resting, enabled: false}}
sinks:
  kept: {{connector: kept, topics: [rt.orders]}}
  flaky: {{connector: flaky, topics: ["rt.order?"]}}
  locked: {{connector: locked, topics: [rt.orders]}}
settings: {{retry: {{initial_backoff_ms: 100, max_backoff_ms: 400}}}}
"""
    registry = registry_with(kept=kept, flaky=flaky, locked=locked)
    with running(text, spark, tmp_path, registry) as run:
        run.until(lambda: run.pipeline("sources.orders").records
                  + run.pipeline("sources.orders").dead_letters == ROWS)  # fmt: skip
        arrived = records(shared_node.kafka, "rt.orders")
        run.until(lambda: len(kept.values) >= len(arrived) <= len(flaky.values))
        run.until(lambda: run.pipeline("sinks.flaky").error == "")
        misguided, resting = run.pipeline("sources.misguided"), run.pipeline("sources.resting")
        locked_out = run.pipeline("sinks.locked")
        flaky_status = run.pipeline("sinks.flaky")
    letters = records(shared_node.kafka, "rt.orders.dead")

    assert len(arrived) + len(letters) == ROWS
    assert all(json.loads(r.value or b"")["email"] == "***" for r in arrived)
    assert sorted(kept.values) == sorted(flaky.values) == sorted(r.value or b"" for r in arrived)
    check_letter(letters[0].value or b"", dict(letters[0].headers))

    assert misguided.state is PipelineState.FAILED
    assert "no_such_column" in misguided.error
    assert locked_out.state is PipelineState.FAILED
    assert "login refused (check the password)" in locked_out.error
    assert resting.state is PipelineState.DISABLED
    assert flaky_status.restarts >= 2  # and one more where Spark was too busy to start a worker

    status = read_status(tmp_path)
    assert status is not None
    assert {each.state for each in status.pipelines} == {
        PipelineState.STOPPED,
        PipelineState.FAILED,
        PipelineState.DISABLED,
    }
    assert (
        f'dead_letters_total{{pipeline="sources.orders",connector="datagen"}} {len(letters)}'
        in (metrics_text(status))
    )
    assert asyncio.run(lag(shared_node, "pipeline-kept", "rt.orders")) == 0


def check_letter(value: bytes, headers: dict[str, bytes | None]) -> None:
    envelope = json.loads(value)
    assert list(envelope) == [
        "original_topic", "connector_name", "payload_b64", "error", "retry_count", "timestamp"
    ]  # fmt: skip
    assert envelope["original_topic"] == "rt.orders"
    assert envelope["connector_name"] == "sources.orders"
    assert "country" in envelope["error"]
    assert abs(envelope["timestamp"] / 1000 - time.time()) < 600
    assert json.loads(base64.b64decode(envelope["payload_b64"]))["product"] == "anchor"
    assert b"sources.orders.transforms[1]" in (headers["mainstem.step"] or b"")


async def lag(node: LocalNode, group: str, topic: str) -> int:
    async with Admin(node.kafka) as admin:
        mine = [each for each in await admin.groups.lag(group) if each.partition.topic == topic]
        assert mine
        return sum(each.lag or 0 for each in mine)


def test_a_bad_record_without_a_place_for_dead_letters_stops_its_pipeline(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path
) -> None:
    text = f"""
version: "1.0"
broker: {{bootstrap_servers: ["{shared_node.kafka}"]}}
sources:
  strict:
    connector: datagen
    topic: rt.strict
    config: {{count: 20, rows_per_second: null}}
    transforms: [{{type: cast, config: {{specs: {{country: integer}}}}}}]
settings: {{retry: {{max_retries: 1, initial_backoff_ms: 50}}}}
"""
    with running(text, spark, tmp_path) as run:
        run.until(lambda: run.pipeline("sources.strict").state is PipelineState.FAILED)
        error = run.pipeline("sources.strict").error
    assert "sources.strict.transforms[0] (cast) refused a record" in error
    assert "set dead_letter_topic" in error
    assert records(shared_node.kafka, "rt.strict") == []


def test_good_records_of_a_sink_are_not_held_up_by_bad_ones(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path
) -> None:
    sink = CollectingSink()
    values = [b'{"n": %d}' % n for n in range(10)]
    produce(shared_node.kafka, "rt.mixed", [*values, b"no json", b'{"n": "refuse me"}'])
    text = f"""
version: "1.0"
broker: {{bootstrap_servers: ["{shared_node.kafka}"]}}
sinks:
  mixed:
    connector: kept
    topics: [rt.mixed]
    dead_letter_topic: rt.mixed-dead
    transforms: [{{type: insert_field, config: {{static_fields: {{seen: "yes"}}}}}}]
"""
    with running(text, spark, tmp_path, registry_with(kept=sink)) as run:
        run.until(lambda: len(sink.values) == len(values)
                  and len(records(shared_node.kafka, "rt.mixed-dead")) == 2)  # fmt: skip
    assert all(json.loads(value)["seen"] == "yes" for value in sink.values)
    letters = [json.loads(r.value or b"") for r in records(shared_node.kafka, "rt.mixed-dead")]
    payloads = {base64.b64decode(letter["payload_b64"]) for letter in letters}
    assert b"no json" in payloads
    assert {letter["original_topic"] for letter in letters} == {"rt.mixed"}
    assert "never wanted" in {letter["error"] for letter in letters}


def test_a_rate_limit_is_kept(spark: SparkSession, shared_node: LocalNode, tmp_path: Path) -> None:
    text = f"""
version: "1.0"
broker: {{bootstrap_servers: ["{shared_node.kafka}"]}}
sources:
  slow:
    connector: datagen
    topic: rt.slow
    rate_limit: {{events_per_second: 100, burst_size: 25}}
    config: {{rows_per_second: null}}
"""
    with running(text, spark, tmp_path) as run:
        run.until(lambda: run.pipeline("sources.slow").records > 0)
        began, before = time.monotonic(), run.pipeline("sources.slow").records
        run.until(lambda: run.pipeline("sources.slow").records >= before + 200)
        took = time.monotonic() - began
    # One burst may be under way at either end.
    assert took >= (200 - 2 * 25) / 100


def test_a_rehearsal_shows_records_and_writes_none(
    spark: SparkSession, shared_node: LocalNode
) -> None:
    produce(shared_node.kafka, "rt.shown", [b'{"email": "a@b"}', b"no json"])
    file = read_text(
        f"""
version: "1.0"
broker: {{bootstrap_servers: ["{shared_node.kafka}"]}}
sources:
  made: {{connector: datagen, topic: rt.never, config: {{kind: clicks}}}}
sinks:
  shown:
    connector: stdout
    topics: [rt.shown]
    dead_letter_topic: rt.never-dead
    transforms: [{{type: mask_field, config: {{fields: [email]}}}}]
""",
        {},
    )
    made = dry_run_pipeline(file, file.pipeline("made"), spark, records=3, patience_s=100)
    shown = dry_run_pipeline(file, file.pipeline("shown"), spark, records=2, patience_s=100)

    assert [json.loads(bytes(row["value"]))["page"][0] for row in made.good] == ["/"] * 3
    assert [json.loads(bytes(row["value"])) for row in shown.good] == [{"email": "***"}]
    assert [bytes(row["value"]) for row in shown.dead] == [b"no json"]

    async def left_behind() -> tuple[set[str], list[str]]:
        async with Admin(shared_node.kafka) as admin:
            topics = set(await admin.list_topics())
            return topics, [each.id for each in await admin.groups.list_all()]

    topics, groups = asyncio.run(left_behind())
    assert not topics & {"rt.never", "rt.never-dead"}
    assert not [group for group in groups if group.startswith("rehearsal")]


def test_cases_of_a_file_compare_what_comes_out(spark: SparkSession) -> None:
    file = read_text(
        """
version: "1.0"
sources:
  people:
    connector: datagen
    topic: people
    transforms:
    - {type: mask_field, config: {fields: [email]}}
    - {type: cast, config: {specs: {age: integer}}}
tests:
- name: all as it should be
  pipeline: sources.people
  input:
  - {key: a, value: {email: x@y, age: "7"}}
  - {value: {age: old}}
  - {value: no json}
  expect: [{key: a, topic: people, value: {email: "***", age: 7}}]
  expect_dead: [{error: age}, {value: no json, step: mask_field}]
- name: other values
  pipeline: sources.people
  input: [{value: {age: "7"}}]
  expect: [{value: {age: 8}}, {key: b}]
- name: more than expected
  pipeline: sources.people
  input: [{value: {age: 1}}]
""",
        {},
    )
    right, wrong, more = [run_case(c, file.pipeline(c.pipeline), spark) for c in file.cases]
    assert right.passed, right.differences
    assert wrong.differences == (
        'expect[0]: value is {"age":7}, expected {"age":8}',
        "expect[1]: no record in the output",
    )
    assert len(more.differences) == 1
    assert "unexpected record" in more.differences[0]


def test_a_stop_while_many_pipelines_are_opening_leaves_nothing_behind(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path
) -> None:
    sources = "\n".join(
        f"  many-{number}: {{connector: datagen, topic: rt.many}}" for number in range(8)
    )
    text = f"""
version: "1.0"
broker: {{bootstrap_servers: ["{shared_node.kafka}"]}}
sources:
{sources}
"""
    with running(text, spark, tmp_path) as run:
        run.until(
            lambda: any(each.state is PipelineState.STARTING for each in run.status.pipelines)
        )
    assert {each.state for each in run.status.pipelines} == {PipelineState.STOPPED}
    assert not [query for query in spark.streams.active if "many" in query.name]


class CountedStep(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes nothing and counts how often it is compiled."""

    compilations: ClassVar[list[str]] = []
    name: str

    def problems(self) -> Iterable[StepProblem]:
        self.compilations.append(self.name)
        return ()

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        return rows


def test_the_plan_compiled_by_validation_serves_cases_a_dry_run_and_every_start_of_a_run(
    spark: SparkSession,
    shared_node: LocalNode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(STEPS, "counted", CountedStep)
    sink = CollectingSink()
    sink.failures_left = 1
    produce(shared_node.kafka, "rt.compiled", [b'{"n": 1}', b'{"n": 2}'])
    file = read_text(
        f"""
version: "1.0"
broker: {{bootstrap_servers: ["{shared_node.kafka}"]}}
sources:
  made:
    connector: datagen
    topic: rt.compiled-made
    config: {{count: 5, rows_per_second: null}}
    transforms: [{{type: counted, config: {{name: made}}}}]
sinks:
  kept:
    connector: kept
    topics: [rt.compiled]
    dead_letter_topic: rt.compiled-dead
    transforms: [{{type: counted, config: {{name: kept}}}}]
settings: {{retry: {{initial_backoff_ms: 50}}}}
tests: [{{name: n, pipeline: sinks.kept, input: [{{value: {{n: 3}}}}], expect: [{{}}]}}]
""",
        {},
        registry_with(kept=sink),
    )
    kept = file.pipeline("kept")
    assert run_case(file.cases[0], kept, spark).passed
    assert dry_run_pipeline(file, kept, spark, records=2, patience_s=100).taken == 2
    with running(file, spark, tmp_path) as run:
        run.until(lambda: len(sink.values) == 2 and run.pipeline("sources.made").records == 5)
        assert run.pipeline("sinks.kept").restarts >= 1

    assert CountedStep.compilations == ["made", "kept"]
