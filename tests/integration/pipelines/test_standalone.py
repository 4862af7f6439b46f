"""Pipelines on a Spark cluster: a master and two workers in processes of their own, on loopback.

What runs is what runs embedded: files, transforms, aggregates with state, exactly once. Only
``settings.spark`` differs.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from tests.integration.pipelines import cluster_job
from tests.integration.pipelines.stage import produce, records
from tests.integration.pipelines.standalone import QUICK_START, StandaloneSpark

from mainstem.model.records import columns
from mainstem.testing.local_node import LocalNode

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]

ORDERS = 2_000
INPUT = 3_000
WORKERS = 2
TASKS = 8
DRIVER_TIMEOUT_S = 300

FILE = """
version: "1.0"
broker: {{bootstrap_servers: ["{servers}"]}}
sources:
  orders:
    connector: datagen
    topic: cluster.orders
    topic_config: {{partitions: 4}}
    config: {{kind: orders, count: {orders}, rows_per_second: null, tasks: 4}}
    transforms:
    - {{type: mask_field, config: {{fields: [email]}}}}
    - type: content_router
      config: {{routes: [{{when: "amount >= 250", topic: cluster.large}}]}}
  copy:
    connector: kafka
    topic: cluster.copy
    topic_config: {{partitions: 2}}
    rate_limit: {{events_per_second: 15000, burst_size: 1000}}
    config: {{bootstrap_servers: ["{servers}"], topics: [cluster.input]}}
  totals:
    connector: kafka
    topic: cluster.totals
    rate_limit: {{events_per_second: 15000, burst_size: 1500}}
    config: {{bootstrap_servers: ["{servers}"], topics: [cluster.input]}}
    transforms:
    - type: sql
      config:
        schema: "n bigint, country string"
        output_mode: update
        query: |
          SELECT country AS _key, count(*) AS orders, sum(n) AS total FROM input GROUP BY country
sinks:
  archive:
    connector: parquet
    topics: [cluster.orders, cluster.large]
    config: {{path: {folder}/archive, schema: "order_id bigint, email string"}}
settings:
  state_dir: {folder}/state
  health: {{enabled: false}}
  retry: {{max_retries: 0}}
  spark:
    master: {master}
    driver_memory: 512m
    conf:
      spark.executor.memory: 512m
      spark.executor.cores: "1"
      spark.executor.extraJavaOptions: {java_options}
      spark.driver.extraJavaOptions: {java_options}
      spark.sql.shuffle.partitions: "2"
"""


def drive(cluster: StandaloneSpark, file: Path) -> None:
    """Run a driver to its end."""
    with subprocess.Popen(
        [sys.executable, cluster_job.__file__, file, str(TASKS)],
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as driver:
        try:
            _, errors = driver.communicate(timeout=DRIVER_TIMEOUT_S)
        except BaseException:
            os.killpg(driver.pid, signal.SIGKILL)
            raise
    assert driver.returncode == 0, f"{errors}\n{cluster.log_tails()}"


def test_the_same_pipeline_files_run_on_a_cluster(shared_node: LocalNode, tmp_path: Path) -> None:
    made = [json.dumps({"n": n, "country": "CDE"[n % 3]}).encode() for n in range(INPUT)]
    produce(shared_node.kafka, "cluster.input", made)
    file = tmp_path / "pipeline.yaml"

    with StandaloneSpark(tmp_path, workers=WORKERS) as cluster:
        filled = {"servers": shared_node.kafka, "folder": tmp_path, "master": cluster.master}
        file.write_text(FILE.format(**filled, orders=ORDERS, java_options=QUICK_START))
        drive(cluster, file)

    # Every worker took part, with this Python, our daemon and the compiled decoder.
    seen = json.loads((tmp_path / "executors.json").read_bytes())
    assert [each["task"] for each in seen] == list(range(TASKS))
    assert {each["python"] for each in seen} == {sys.executable}
    assert all(each["preloaded"] for each in seen)
    assert {each["native"] for each in seen} == {columns.COMPILED is not None}
    for worker in range(WORKERS):
        folder = cluster.work_dir(worker)
        assert any(Path(each["folder"]).is_relative_to(folder) for each in seen), seen
    # Topic to topic, each record once.
    copied = [record.value for record in records(shared_node.kafka, "cluster.copy")]
    assert Counter(copied) == Counter(made)
    # An aggregate over two batches, its state kept by the executors.
    totals = {
        record.key: json.loads(record.value or b"")
        for record in records(shared_node.kafka, "cluster.totals")
    }
    assert totals == {
        bytes([country]): {"orders": INPUT // 3, "total": sum(range(first, INPUT, 3))}
        for first, country in enumerate(b"CDE")
    }
    # Made-up orders: masked, routed, and from their topics into files.
    small, large = (
        [json.loads(each.value or b"") for each in records(shared_node.kafka, topic)]
        for topic in ("cluster.orders", "cluster.large")
    )
    assert all(each["amount"] < 250 for each in small)
    assert all(each["amount"] >= 250 for each in large)
    stored = ds.dataset(tmp_path / "archive", format="parquet").to_table().to_pylist()
    assert sorted(each["order_id"] for each in stored) == list(range(ORDERS))
    assert {each["email"] for each in [*stored, *small, *large]} == {"***"}
