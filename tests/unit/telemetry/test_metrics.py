"""Metrics: declared once, rendered in both formats, bounded."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mainstem.telemetry import exposition
from mainstem.telemetry.exposition import json_summary, prometheus_text
from mainstem.telemetry.metrics import PLAIN, LagSample, Metrics, Sample, StreamSample


def families(metrics: Metrics, sample: Sample) -> dict[str, dict[tuple[str, ...], float]]:
    text = prometheus_text(metrics, sample, lambda key: f"api-{key}").decode()
    return {
        family.name: {
            tuple(v for _, v in sorted(s.labels.items())): s.value for s in family.samples
        }
        for family in text_string_to_metric_families(text)
    }


def test_every_count_is_declared_or_has_a_family_of_its_own() -> None:
    own = {"requests", "request_errors", "http_requests", "connections", "connections_refused"}
    own.add("catalogue_facts_ignored")
    assert PLAIN.keys() | own == set(Metrics.__slots__)


def test_names_follow_the_house_and_have_help() -> None:
    for declared in PLAIN.values():
        assert re.fullmatch(r"mainstem_[a-z]+_[a-z_]+", declared.name)
        assert declared.help.endswith(".")


def test_plain_counts_appear_with_their_value() -> None:
    metrics = Metrics()
    metrics.messages_in += 7
    metrics.connections_active = 3
    found = families(metrics, Sample())
    assert found["mainstem_broker_messages_in"] == {(): 7}
    assert found["mainstem_listener_connections_active"] == {(): 3}


def test_requests_are_counted_by_api_and_by_status() -> None:
    metrics = Metrics({"TopicDeleted": 2})
    metrics.requests[0] += 2
    metrics.request_errors[3] += 1
    metrics.http_requests[404] += 5
    found = families(metrics, Sample())
    assert found["mainstem_kafka_requests"] == {("api-0",): 2}
    assert found["mainstem_kafka_request_errors"] == {("api-3",): 1}
    assert found["mainstem_http_requests"] == {("404",): 5}
    assert found["mainstem_catalogue_facts_ignored"] == {("TopicDeleted",): 2}


def test_streams_and_lag_appear_with_their_labels() -> None:
    sample = Sample(
        streams=[StreamSample('a b"c\n', 1, 5, 9, 400)],
        lags=[LagSample("g", "t", 2, committed=4, lag_records=5, lag_seconds=1.5)],
        groups_by_state={"Stable": 1},
    )
    found = families(Metrics(), sample)
    assert found["mainstem_stream_end_offset"] == {("1", 'a b"c\n'): 9}
    assert found["mainstem_group_lag_records"] == {("g", "2", "t"): 5}
    assert found["mainstem_group_lag_seconds"] == {("g", "2", "t"): 1.5}
    assert found["mainstem_groups"] == {("Stable",): 1}


def test_the_largest_streams_are_kept_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exposition, "PARTITION_SERIES_MAX", 2)
    streams = [StreamSample("t", partition, 0, 0, size) for partition, size in enumerate([5, 9, 7])]
    found = families(Metrics(), Sample(streams=streams))
    assert set(found["mainstem_stream_size_bytes"]) == {("1", "t"), ("2", "t")}


def test_the_summary_is_snake_case_and_adds_up() -> None:
    metrics = Metrics()
    metrics.log_syncs, metrics.log_sync_seconds = 4, 0.002
    metrics.request_errors[1] = 2
    metrics.malformed_frames = 1
    summary = json_summary(metrics, Sample(memory_bytes=3 << 20))
    assert all(re.fullmatch(r"[a-z_]+", name) for name in summary)
    assert summary["average_disk_sync_ms"] == 0.5
    assert summary["total_errors"] == 3
    assert summary["memory_usage_mb"] == 3.0


def test_a_node_without_traffic_reports_zeros() -> None:
    summary = json_summary(Metrics(), Sample())
    assert summary["average_disk_sync_ms"] == 0.0
    assert summary["total_messages_published"] == 0


def test_every_metric_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `(mainstem_\w+)` \|", page, flags=re.MULTILINE))
    text = prometheus_text(Metrics(), Sample()).decode()
    exported = {name.removesuffix("_total") for name in re.findall(r"^# TYPE (\w+)", text, re.M)}
    assert documented == exported


def test_every_count_is_fed_by_somebody() -> None:
    """A metric that stays zero whatever happens would be a false promise."""
    src = Path(__file__).parents[3] / "src" / "mainstem"
    source = "\n".join(path.read_text() for path in src.rglob("*.py"))
    # The catalogue counts by itself, the disk is measured.
    set_elsewhere = {"catalogue_facts_ignored", "disk_free_bytes", "disk_full"}
    unfed = [
        name
        for name in Metrics.__slots__
        if name not in set_elsewhere and not re.search(rf"\.{name}(\[[^\]]*\])? \+= ", source)
    ]
    assert not unfed


def test_the_free_space_is_what_was_measured_last() -> None:
    metrics = Metrics()
    metrics.disk_measured(10, is_full=True)
    metrics.disk_measured(20, is_full=False)
    assert (metrics.disk_free_bytes, metrics.disk_full) == (20, 0)


def test_rounds_of_flushes_add_up() -> None:
    metrics = Metrics()
    metrics.synced(0.25)
    metrics.synced(0.5)
    assert (metrics.log_syncs, metrics.log_sync_seconds) == (2, 0.75)
