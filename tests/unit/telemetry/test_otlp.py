"""Metrics that clients push are read, damage is told, and nothing grows beyond its bounds."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.telemetry import otlp_bytes as otlp

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest
from mainstem.telemetry.otlp import ATTRIBUTES_MAX, MetricPoint, decode_metrics


def points(data: bytes, points_max: int = 100) -> list[MetricPoint]:
    return decode_metrics(data, points_max=points_max).points


def test_every_kind_of_metric_is_read() -> None:
    node = otlp.attribute(7, "node_id", otlp.text(1, "1"))
    data = otlp.pushed(
        otlp.gauge("g", otlp.point(1.5, node, time_ns=2_500_000), otlp.point(-3)),
        otlp.total("s", otlp.point(7)),
        otlp.histogram("h", 4, 10.5),
        resource=otlp.attribute(1, "client_rack", otlp.text(1, "a")),
    )
    read = decode_metrics(data, points_max=10)
    assert read.resource == {"client_rack": "a"}
    assert read.points == [
        MetricPoint("g", "gauge", 1.5, None, 2, {"node_id": "1"}),
        MetricPoint("g", "gauge", -3),
        MetricPoint("s", "sum", 7),
        MetricPoint("h", "histogram", 10.5, 4),
    ]


def test_attributes_may_be_texts_truth_values_and_numbers() -> None:
    values = {
        "text": (otlp.text(1, "ü"), "ü"),
        "truth": (otlp.varint(2 << 3) + otlp.varint(1), True),
        "whole": (otlp.varint(3 << 3) + otlp.varint(-5), -5),
        "broken": (otlp.fixed(4, "<d", 0.25), 0.25),
    }
    attributes = [otlp.attribute(7, name, value) for name, (value, _) in values.items()]
    [read] = points(otlp.pushed(otlp.gauge("g", otlp.point(1, *attributes))))
    assert read.attributes == {name: expected for name, (_, expected) in values.items()}


def test_what_is_unknown_is_skipped() -> None:
    strange = otlp.text(99, "new") + otlp.varint(98 << 3) + otlp.varint(7)
    strange += otlp.varint(97 << 3 | 5) + bytes(4) + otlp.fixed(96, "<d", 1.0)
    data = otlp.pushed(otlp.gauge("g", otlp.point(1)) + strange) + strange
    assert points(data) == [MetricPoint("g", "gauge", 1)]


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05abc",  # longer than what is there
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",  # a length that does not end
        b"\x0b",  # a group, which nobody uses
        b"\x0a",  # no length
        otlp.pushed(otlp.gauge("g", otlp.point(1)))[:-1],
        otlp.pushed(otlp.message(1, b"\xff\xfe")),  # a name that is no text
    ],
)
def test_damage_is_told(data: bytes) -> None:
    with pytest.raises(Corrupt):
        points(data)


def test_points_and_attributes_are_bounded() -> None:
    many = otlp.pushed(*[otlp.gauge("g", otlp.point(1), otlp.point(2))] * 6)
    with pytest.raises(InvalidRequest) as refused:
        points(many, points_max=10)
    assert refused.value.code is ErrorCode.TELEMETRY_TOO_LARGE
    smallest = bytes([0x0A, 0x00])
    with pytest.raises(InvalidRequest) as refused:
        decode_metrics(smallest * 101, points_max=1, fields_max=100)
    assert refused.value.code is ErrorCode.TELEMETRY_TOO_LARGE
    attributes = [otlp.attribute(7, f"a{n}", otlp.text(1, "x" * 999)) for n in range(100)]
    [read] = points(otlp.pushed(otlp.gauge("g", otlp.point(1, *attributes))))
    assert len(read.attributes) == ATTRIBUTES_MAX
    assert {len(str(value)) for value in read.attributes.values()} == {300}


@given(st.binary(max_size=200), st.integers(min_value=0, max_value=200))
def test_no_bytes_do_anything_else(noise: bytes, at: int) -> None:
    sound = otlp.pushed(otlp.gauge("g", otlp.point(1)), otlp.histogram("h", 1, 2.0))
    for data in (noise, sound[:at] + noise + sound[at:]):
        with contextlib.suppress(Corrupt, InvalidRequest):
            decode_metrics(data, points_max=10)
