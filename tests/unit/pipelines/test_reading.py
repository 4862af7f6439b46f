"""Pipeline files, good ones and broken ones: every problem at once, each at its place."""

import re
from pathlib import Path

import pytest

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.pipelines.file.loader import PipelineFile, read_file, read_text
from mainstem.pipelines.file.model import SinkEntry, SourceEntry
from mainstem.pipelines.file.rules import pattern_of
from mainstem.pipelines.problems import FileProblem, Problems

WHOLE = """
version: "1.0"
broker:
  bootstrap_servers: ["127.0.0.1:9092", "127.0.0.1:9093"]
  metadata_refresh_ms: 300000
  connection_timeout_ms: 10000
  request_timeout_ms: 30000
  tls: {enabled: true, cert_path: c, key_path: k, ca_path: a, insecure: false}
  sasl: {mechanism: SCRAM-SHA-256, username: me, password: "${PASSWORD}"}
sources:
  orders:
    connector: datagen
    topic: orders
    topic_config: {partitions: 3, replication_factor: 1, auto_create: true}
    enabled: true
    rate_limit: {events_per_second: 1000, max_in_flight: 500, burst_size: 100}
    dead_letter_topic: orders.dead
    tables: [{schema: public, table: orders, topic: orders}]
    config: {kind: orders, rows_per_second: "${PACE:-25}"}
sinks:
  show:
    connector: stdout
    topics: [orders, "cdc.*"]
    consumer_group: show
    enabled: false
    start_offset: earliest
    rate_limit: {events_per_second: 100, burst_capacity: 10}
    offset_commit_interval: 100
    dead_letter_topic: shown.dead
    config: {format: json}
settings:
  state_dir: ./data/connect-state
  topic:
    auto_create: true
    default_partitions: 1
    default_replication_factor: 1
    require_topic_exists: false
    validate_existing: false
  retry: {max_retries: 10, initial_backoff_ms: 100, max_backoff_ms: 30000, backoff_multiplier: 2.0}
  health: {enabled: true, port: 8080, path: /health}
  metrics: {enabled: true, port: 9090}
  log_level: info
distributed: {enabled: false, node_id: one}
"""


def read(text: str, **environment: str) -> PipelineFile:
    return read_text(text, environment)


def problems(text: str, **environment: str) -> list[FileProblem]:
    with pytest.raises(Problems) as caught:
        read_text(text, environment)
    return list(caught.value.problems)


def with_source(lines: str) -> str:
    entry = "".join(f"    {line}\n" for line in lines.splitlines())
    return f"version: '1.0'\nsources:\n  a:\n{entry}"


GOOD_SOURCE = "connector: datagen\ntopic: t\n"


def test_every_key_of_the_file_is_understood() -> None:
    file = read(WHOLE, PASSWORD="hunter2hunter2")
    orders, show = file.pipelines
    assert (orders.id, show.id) == ("sources.orders", "sinks.show")
    assert isinstance(orders.entry, SourceEntry)
    assert orders.entry.topic_config.partitions == 3
    assert getattr(orders.config, "rows_per_second", None) == 25
    assert isinstance(show.entry, SinkEntry)
    assert not show.entry.enabled
    assert file.model.broker.sasl is not None
    assert file.model.broker.sasl.password == "hunter2hunter2"
    assert {warning.path for warning in file.warnings} == {
        "sinks.show.offset_commit_interval",
        "broker.metadata_refresh_ms",
    }


def test_a_small_file_needs_little() -> None:
    file = read(with_source(GOOD_SOURCE))
    assert file.model.broker.bootstrap_servers == ["127.0.0.1:9092"]
    assert file.model.settings.retry.max_retries == 10
    assert not file.warnings


def test_values_of_the_environment_are_hidden_in_what_is_shown() -> None:
    file = read(WHOLE, PASSWORD="hunter2hunter2")
    assert file.secrets.redact("bad login: hunter2hunter2") == "bad login: ${PASSWORD}"


def test_a_password_that_stands_in_the_file_is_hidden_too() -> None:
    text = with_source(GOOD_SOURCE) + "broker: {sasl: {username: u, password: written-here}}\n"
    assert read(text).secrets.redact("with written-here") == "with ***"


# Each: what stands in the file, then the path, line and words of the problem it leads to.
BROKEN = [
    ("", "", 1, "empty"),
    ("- 1\n", "", 1, "not a mapping"),
    ("version: '2.0'\nsources: {a: {connector: datagen, topic: t}}\n", "version", 1, "supported"),
    ("sources: {a: {connector: datagen, topic: t}}\n", "", 1, "version is missing"),
    ("version: '1.0'\n", "", 1, "neither sources"),
    ("version: '1.0'\nsorces: {}\n", "sorces", 2, "did you mean sources?"),
    (with_source("topic: t"), "sources.a", 3, "connector is missing"),
    (with_source("connector: datagen"), "sources.a", 3, "topic is missing"),
    (with_source("connector: datagem\ntopic: t"), "sources.a.connector", 4, "mean datagen?"),
    (with_source("connector: stdout\ntopic: t"), "sources.a.connector", 4, "put it under sinks"),
    (with_source("connector: datagen\ntopic: a/b"), "sources.a.topic", 5, "characters"),
    (with_source(GOOD_SOURCE + "enabled: perhaps"), "sources.a.enabled", 6, "true or false"),
    (with_source(GOOD_SOURCE + "transform: []"), "sources.a.transform", 6, "mean transforms?"),
    (with_source(GOOD_SOURCE + "config: {kind: x}"), "sources.a.config.kind", 6, "choices"),
    (with_source(GOOD_SOURCE + "config: {cuont: 1}"), "sources.a.config.cuont", 6, "mean count?"),
    (with_source(GOOD_SOURCE + "config: [1]"), "sources.a.config", 6, "mapping"),
    (with_source(GOOD_SOURCE + "config: {seed: ${S}}"), "", 6, "quotes"),
    (with_source(GOOD_SOURCE + "config:\n  seed: ${S}"), "sources.a.config.seed", 7, "not set"),
    (with_source(GOOD_SOURCE + "config:\n  seed: ${W}"), "sources.a.config.seed", 7, "whole"),
    (with_source(GOOD_SOURCE + "schema_registry_url: http://r"), "sources.a.schema_registry_url", 6,
     "registry is not supported"),
    (with_source(GOOD_SOURCE + "dead_letter_topic: t"), "sources.a.dead_letter_topic", 6,
     "of the source"),
    (with_source(GOOD_SOURCE + "rate_limit: {}"), "sources.a.rate_limit", 6,
     "events_per_second is missing"),
    (with_source(GOOD_SOURCE + "topic_config: {partitions: 0}"),
     "sources.a.topic_config.partitions", 6, ">= 1"),
    (with_source(GOOD_SOURCE + "tables: [{topic: x}]"), "sources.a.tables[0]", 6, "table is"),
    ("version: '1.0'\nsources: {'a b': {connector: datagen, topic: t}}", "sources.a b", 2, "name"),
    ("version: '1.0'\nsinks: {a: {connector: stdout, topics: []}}", "sinks.a.topics", 2, "length"),
    ("version: '1.0'\nsinks: {a: {connector: stdout, topics: t}}", "sinks.a.topics", 2, "a list"),
    ("version: '1.0'\nsinks:\n  a: {connector: stdout, topics: ['d*'], dead_letter_topic: dead}\n",
     "sinks.a.dead_letter_topic", 3, "loop"),
    ("version: '1.0'\nsinks:\n  a: {connector: stdout, topics: [t], start_offset: -1}\n",
     "sinks.a.start_offset", 3, "negative"),
    ("version: '1.0'\nsinks:\n  a: {connector: stdout, topics: ['t*'], start_offset: 5}\n",
     "sinks.a.start_offset", 3, "without patterns"),
    ("version: '1.0'\nsinks:\n  a: {connector: stdout, topics: [t], start_offset: soon}\n",
     "sinks.a.start_offset", 3, "start offset"),
    ("version: '1.0'\nsinks:\n  a: {connector: stdout, topics: [t], consumer_group: g}\n"
     "  b: {connector: stdout, topics: [t], consumer_group: g}\n",
     "sinks.b.consumer_group", 4, "sinks.a"),
    (with_source(GOOD_SOURCE) + "distributed: {enabled: true}\n", "distributed", 6, "Spark"),
    (with_source(GOOD_SOURCE) + "settings: {health: {host: 0.0.0.0}}\n", "settings.health.host", 6,
     "other machines"),
    (with_source(GOOD_SOURCE) + "settings: {retry: {max_retry: 1}}\n", "settings.retry.max_retry",
     6, "mean max_retries?"),
    (with_source(GOOD_SOURCE) + "broker: {bootstrap_servers: []}\n", "broker.bootstrap_servers", 6,
     "length"),
    (with_source(GOOD_SOURCE) + "broker: {tls: {cert_path: c}}\n", "broker.tls", 6, "together"),
    (with_source(GOOD_SOURCE) + "broker: {tls: {insecure: true}}\n", "broker.tls.insecure", 6,
     "always verified"),
    (with_source(GOOD_SOURCE) + "broker: {tls: {server_name: x}}\n", "broker.tls.server_name", 6,
     "bootstrap_servers"),
    (with_source(GOOD_SOURCE) + "tests: [{name: n, pipeline: sources.b, input: []}]\n",
     "tests[0].pipeline", 6, "sources.a"),
    (with_source(GOOD_SOURCE)
     + "tests: [{name: n, pipeline: sources.a, input: [], expect: [{v: 1}]}]\n",
     "tests[0].expect[0].v", 6, "unknown key"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path", "line", "words"), BROKEN)
def test_a_broken_file_is_told_what_where_and_how_to_mend_it(
    text: str, path: str, line: int, words: str
) -> None:
    found = problems(text, W="no number")
    [problem] = [each for each in found if words in f"{each.message} {each.remedy}"]
    assert (problem.path, problem.line) == (path, line)
    assert problem.column is not None
    assert len(found) == 1, [str(each) for each in found]


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    found = problems(
        "version: '3'\n"
        "sources:\n"
        "  a: {connector: nothing, topic: 'x y', enabld: true}\n"
        "  b: {connector: datagen, topic: t, config: {kind: x, count: many}}\n"
        "sinks:\n"
        "  c: {connector: stdout, topics: [t], schema_registry_url: u}\n"
    )
    assert [each.line for each in found] == [3, 3, 3, 4, 4, 6]
    assert [each.path for each in found] == [
        "sources.a.connector",
        "sources.a.topic",
        "sources.a.enabld",
        "sources.b.config.kind",
        "sources.b.config.count",
        "sinks.c.schema_registry_url",
    ]


def test_problems_do_not_show_what_came_from_the_environment() -> None:
    [problem] = problems(with_source("connector: datagen\ntopic: ${T}"), T="secret/topic")
    assert "secret" not in str(problem)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_file(tmp_path / "none.yaml", {})
    assert caught.value.code is ErrorCode.UNKNOWN_RESOURCE


def test_problems_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"version: '1.0'\n")
    with pytest.raises(Problems) as caught:
        read_file(path, {})
    assert caught.value.subject == str(path)


def test_a_pipeline_is_found_by_its_name_where_only_one_bears_it() -> None:
    text = with_source(GOOD_SOURCE) + "sinks: {a: {connector: stdout, topics: [t]}}\n"
    file = read(text)
    assert file.pipeline("sinks.a").kind == "sink"
    for wanted in ("a", "b"):
        with pytest.raises(InvalidRequest) as caught:
            file.pipeline(wanted)
        assert "sources.a" in caught.value.remedy


@pytest.mark.parametrize(
    ("topics", "matching", "other"),
    [
        (["orders", "cdc.*"], ["orders", "cdc.a.b"], ["ordersx", "cdcxa", "xorders"]),
        (["*"], ["orders", "_a"], ["__consumer_offsets"]),
        (["__consumer_*"], ["__consumer_offsets"], ["consumer_offsets"]),
        (["a?"], ["ab"], ["a", "abc"]),
    ],
)
def test_patterns_match_whole_names_and_leave_internal_topics_out(
    topics: list[str], matching: list[str], other: list[str]
) -> None:
    pattern = re.compile(pattern_of(topics))
    assert all(pattern.fullmatch(name) for name in matching)
    assert not any(pattern.fullmatch(name) for name in other)
