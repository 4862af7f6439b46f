"""Attacks by way of clients' metrics: bombs, noise, foreign clients, too much and too often."""

import os
import time
import uuid

import pytest
from tests.integration.bad_input.wire import PeakRss, Raw
from tests.unit.telemetry import otlp_bytes as otlp

from mainstem.model.records import compression
from mainstem.testing.local_node import LocalNode
from mainstem.wire.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from mainstem.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from mainstem.wire.kafka.messages.push_telemetry import PushTelemetryRequest

pytestmark = pytest.mark.usefixtures("witness", "subscribed")

MIB = 1 << 20
ALTER, SUBSCRIPTIONS, PUSH = 44, 71, 72
INVALID_REQUEST, BAD_CODEC, BAD_RECORD, TOO_SOON = 42, 76, 87, 89
UNKNOWN_SUBSCRIPTION, TOO_LARGE = 117, 118
CODECS = (compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD)
SOUND = otlp.pushed(otlp.gauge("org.a", otlp.point(1.5)))


@pytest.fixture(scope="module")
def subscribed(node: LocalNode) -> None:
    """Everybody is asked for everything, once an hour."""
    changes = [AlterableConfig("metrics", 0, "*"), AlterableConfig("interval.ms", 0, "3600000")]
    resource = AlterConfigsResource(16, "everybody", changes)
    with Raw(node.kafka) as raw:
        raw.call(ALTER, 1, IncrementalAlterConfigsRequest(resources=[resource]))


def asked(raw: Raw, instance: bytes = bytes(16)) -> tuple[int, bytes, int]:
    """Error, instance and subscription."""
    request = GetTelemetrySubscriptionsRequest(client_instance_id=instance)
    answer = raw.call(SUBSCRIPTIONS, 0, request)
    return answer.error_code, bytes(answer.client_instance_id), answer.subscription_id


def push(raw: Raw, data: bytes, codec: int = 0) -> int:
    """What a client that comes for the first time is answered."""
    _, instance, subscription = asked(raw)
    request = PushTelemetryRequest(instance, subscription, False, codec, data)
    return int(raw.call(PUSH, 0, request).error_code)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_and_takes_no_memory(node: LocalNode, codec: int) -> None:
    bomb = compression.compress(codec, bytes(100 * MIB))[:MIB]
    with PeakRss(node) as memory, Raw(node.kafka, timeout_s=30) as raw:
        for _ in range(5):
            assert push(raw, bomb, codec) in {TOO_LARGE, BAD_RECORD}
    assert memory.growth < 32 * MIB


def test_a_megabyte_of_the_smallest_fields_does_not_hold_the_node_up(node: LocalNode) -> None:
    flood = compression.compress(compression.ZSTD, b"\x0a\x00" * MIB)
    with Raw(node.kafka, timeout_s=30) as raw:
        begun = time.monotonic()
        assert push(raw, flood, compression.ZSTD) == TOO_LARGE
        assert time.monotonic() - begun < 5


def test_noise_is_no_metrics(node: LocalNode) -> None:
    with Raw(node.kafka) as raw:
        for codec in (0, *CODECS):
            assert push(raw, os.urandom(1_000) + b"\x0f", codec) in {BAD_RECORD, TOO_LARGE}
        for codec in (5, 127, -1):
            assert push(raw, SOUND, codec) == BAD_CODEC
        assert push(raw, bytes(MIB + 1)) == TOO_LARGE
        assert push(raw, SOUND) == 0


def test_a_client_pushes_what_it_was_asked_for_and_when(node: LocalNode) -> None:
    with Raw(node.kafka) as raw:
        code, instance, subscription = asked(raw)
        assert code == 0
        sound = PushTelemetryRequest(instance, subscription, metrics=SOUND)
        nobody = PushTelemetryRequest(bytes(16), subscription, metrics=SOUND)
        unasked = PushTelemetryRequest(uuid.uuid4().bytes, subscription + 1, metrics=SOUND)
        last = PushTelemetryRequest(instance, subscription, terminating=True, metrics=SOUND)
        assert raw.call(PUSH, 0, nobody).error_code == INVALID_REQUEST
        assert raw.call(PUSH, 0, unasked).error_code == UNKNOWN_SUBSCRIPTION
        assert raw.call(PUSH, 0, sound).error_code == 0
        assert raw.call(PUSH, 0, sound).error_code == TOO_SOON
        assert asked(raw, instance)[0] == TOO_SOON
        assert raw.call(PUSH, 0, last).error_code == 0
        assert raw.call(PUSH, 0, last).error_code == INVALID_REQUEST


def test_names_from_clients_stay_on_their_line(node: LocalNode) -> None:
    evil = 'org.a\n{"client_id":"forged"}'
    with Raw(node.kafka) as raw:
        assert push(raw, otlp.pushed(otlp.gauge(evil, otlp.point(1)))) == 0
    written = node.data_dir / "client-metrics.jsonl"
    lines = written.read_text().splitlines()
    assert not [line for line in lines if line.startswith('{"client_id"')]
    assert written.stat().st_mode & 0o777 == 0o600
