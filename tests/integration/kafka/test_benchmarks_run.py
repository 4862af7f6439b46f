"""The benchmark's own parts, on volumes that prove nothing about speed."""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bench.figures import GOALS, Volume
from bench.guarded import PASSWORD, USER, Certificates, GuardedNode
from bench.loaders import raw
from bench.measure import costs, cpu_s, family, rss_bytes
from bench.page_cache import make_present
from bench.paths import encrypted, guarded, idempotent
from bench.sides import SIDES, with_ways
from bench.table import render
from bench.workloads import at_rest, fsync_gain, large, single
from confluent_kafka import Consumer, TopicPartition

from mainstem.testing.local_node import LocalNode

TINY = Volume(
    batched=1,
    large=5,
    single=200,
    lone=20,
    latency=1,
    synced=200,
    through=1,
    path=30,
    transactions=2,
)

LONE = pytest.mark.lone("a bare load asks one node and looks for no other")


@LONE
@pytest.mark.parametrize("key", ["written", "synced"])
def test_the_bare_loads_run_and_give_figures(
    key: str, shared_node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.workloads.GAIN_TURNS", 1)
    side = SIDES[key](shared_node)
    figures = large(side, TINY) | single(side, TINY) | fsync_gain(side, TINY)
    assert set(figures) <= set(GOALS)
    assert all(figure.value > 0 for figure in figures.values())


@LONE
def test_the_ways_beside_the_plain_one_are_measured(shared_node: LocalNode, tmp_path: Path) -> None:
    with GuardedNode(Certificates(tmp_path)) as asking:
        side = with_ways(SIDES["written"](shared_node), asking, USER, PASSWORD)
        figures = guarded(side, TINY) | encrypted(side, TINY) | idempotent(side, TINY)
    assert set(figures) <= set(GOALS)
    assert all(figure.beside["path_ns"] > 0 for figure in figures.values())


@LONE
def test_the_loader_writes_records_that_no_retention_by_age_takes_away(
    shared_node: LocalNode,
) -> None:
    side, topic = SIDES["written"](shared_node), f"young-{uuid.uuid4().hex[:8]}"
    side.create(topic)
    raw.produce(shared_node.kafka, topic, (1, 100, 1, 1))
    consumer = Consumer({"bootstrap.servers": shared_node.kafka, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(10)
    consumer.close()
    assert message is not None
    _, written_ms = message.timestamp()
    assert abs(time.time() * 1e3 - written_ms) < 60_000


@LONE
def test_a_reader_that_is_there_before_the_writer_waits_for_it(shared_node: LocalNode) -> None:
    side, topic = SIDES["written"](shared_node), f"early-{uuid.uuid4().hex[:8]}"
    side.create(topic)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(raw.fetch, shared_node.kafka, topic, (1, 1 << 20, 1, 0))
        time.sleep(0.7)  # longer than one fetch waits
        assert not reading.done()
        raw.produce(shared_node.kafka, topic, (1, 100, 1, 1))
        reading.result(30)


def test_memory_made_present_is_calibrated_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pages = make_present(1_000_000)
    assert pages.present_ms > 0
    assert pages.as_found_ms > 0
    assert list(tmp_path.iterdir()) == []


def test_a_server_at_rest_is_measured(shared_node: LocalNode) -> None:
    figures = at_rest(SIDES["written"](shared_node), 0.1)
    assert figures["ready"].value > 0
    assert figures["rss_start"].value > 1


@LONE
def test_the_processor_time_of_a_server_grows_with_its_work(shared_node: LocalNode) -> None:
    before = cpu_s(shared_node.pid)
    with costs(shared_node.pid) as cost:
        single(SIDES["written"](shared_node), TINY)
    assert cpu_s(shared_node.pid) > before
    assert cost.cpu_s > 0
    assert cost.rss_max_bytes >= rss_bytes(shared_node.pid) // 2
    assert shared_node.pid in family(shared_node.pid)


def test_a_table_row_names_durability_ratio_and_target() -> None:
    def figures(*values: float) -> list[dict[str, object]]:
        return [{"value": value, "beside": {"rate": 1_000.0}} for value in values]

    kept = {
        "produce_100b": {
            "mainstem (page cache)": figures(90.0, 100.0, 300.0),
            "mainstem (fsync)": figures(150.0),
            "kafka (page cache)": figures(400.0),
        },
        "fsync_gain": {"mainstem (fsync)": figures(20.0)},
        "idempotent": {
            "mainstem (page cache)": [{"value": 1.1, "beside": {"path_ns": 80.0}}],
            "kafka (page cache)": [{"value": 1.0, "beside": {"path_ns": 400.0}}],
        },
    }
    table = render(kept, GOALS)
    rows = table.splitlines()[2:]
    assert "| mainstem (page cache) | 100 | 90 |" in rows[0]
    assert "| 4.0x | ≤ 180 met |" in rows[0]
    assert rows[1].endswith("| 2.7x |  |")
    assert rows[2].endswith("|  |  |")
    assert rows[3].endswith("≥ 30 **missed** |")
    assert rows[4].endswith("| 5.0x | ≤ 1.15 met |"), "a ratio is compared by what it is a ratio of"
