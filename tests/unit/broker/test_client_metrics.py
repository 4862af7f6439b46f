"""Which clients are asked for which metrics, how often they may push, and what is kept of it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.kit.clock import ManualClock
from tests.kit.topics import topics_admin
from tests.unit.telemetry import otlp_bytes as otlp

from mainstem.broker.api.client_metrics import NO_INSTANCE, MetricsClient, TelemetryPush
from mainstem.broker.services.client_metrics_sampling import INSTANCES_MAX, ClientMetricsSampler
from mainstem.broker.services.client_metrics_service import (
    POINTS_PER_PUSH_MAX,
    PUSH_BYTES_MAX,
    ClientMetricsService,
)
from mainstem.broker.services.topics_service import TopicsAdmin
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.records import compression
from mainstem.telemetry.metrics import Metrics

CLIENT = MetricsClient("app-1", "apache-kafka-java", "4.2.0", "10.0.0.7", 50_000, "User:alice")
ID = b"instance of test"
ALL = {"metrics": "*", "interval.ms": "1000"}
SMALL = otlp.pushed(otlp.gauge("org.a", otlp.point(1.5)), otlp.total("org.b", otlp.point(2)))


def clients(**subscriptions: Mapping[str, str]) -> ClientMetricsSampler:
    made = ClientMetricsSampler()
    made.load(subscriptions)
    return made


def refusal(act: Callable[..., Any], *arguments: Any, **rest: Any) -> ErrorCode:
    with pytest.raises(MainstemError) as refused:
        act(*arguments, **rest)
    return refused.value.code


# Who is asked for what


def test_without_subscriptions_nothing_is_asked_for() -> None:
    asked = clients().ask(ID, CLIENT, 0)
    assert (asked.metrics, asked.interval_ms) == ((), 300_000)
    assert not asked.includes("anything")


def test_all_subscriptions_that_match_count_together() -> None:
    asked = clients(
        a={"metrics": "org.x,org.y", "interval.ms": "2000", "match": "client_id=app-.*"},
        b={"metrics": "org.y,org.z"},
        c={"metrics": "*", "interval.ms": "100", "match": "client_id=app"},
    ).ask(ID, CLIENT, 0)
    assert (asked.metrics, asked.interval_ms) == (("org.x", "org.y", "org.z"), 2_000)
    assert asked.includes("org.x.total")
    assert not asked.includes("org.a")
    everything = clients(a={"metrics": "org.x"}, b=ALL).ask(ID, CLIENT, 0)
    assert everything.metrics == ("*",)
    assert everything.includes("org.a")


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("client_instance_id=aW5zdGFuY2Ugb2YgdGVzdA", True),
        ("client_software_name=apache-kafka-java,client_software_version=4[.].*", True),
        ("client_source_address=10[.]0[.]0[.]7,client_source_port=50000", True),
        ("client_software_name=librdkafka", False),
        ("client_id=app-1,client_source_port=1", False),
    ],
)
def test_every_selector_has_to_match(match: str, matches: bool) -> None:
    asked = clients(a={"metrics": "*", "match": match}).ask(ID, CLIENT, 0)
    assert asked.metrics == (("*",) if matches else ())


def test_the_number_of_a_subscription_changes_with_what_is_asked_for() -> None:
    first = clients(a=ALL).ask(ID, CLIENT, 0).id
    assert clients(a=ALL).ask(ID, CLIENT, 0).id == first
    assert clients(a={**ALL, "interval.ms": "2000"}).ask(ID, CLIENT, 0).id != first
    assert clients(a={**ALL, "metrics": "org"}).ask(ID, CLIENT, 0).id != first


# How often


def test_who_asks_again_too_soon_is_refused_unless_something_changed() -> None:
    measured = clients(a=ALL)
    measured.ask(ID, CLIENT, 0)
    assert refusal(measured.ask, ID, CLIENT, 500) is ErrorCode.THROTTLED
    measured.load({"a": {**ALL, "metrics": "org"}})
    assert measured.ask(ID, CLIENT, 500).metrics == ("org",)
    assert measured.ask(ID, CLIENT, 1_450).metrics == ("org",), "clocks differ a little"


def test_who_pushes_too_soon_is_refused() -> None:
    measured = clients(a=ALL)
    measured.ask(ID, CLIENT, 0)
    measured.admit(ID, CLIENT, 10, terminating=False)
    early: dict[str, Any] = {"terminating": False}
    assert refusal(measured.admit, ID, CLIENT, 500, **early) is ErrorCode.THROTTLED
    measured.admit(ID, CLIENT, 1_010, terminating=False)
    measured.admit(ID, CLIENT, 1_020, terminating=True)
    assert refusal(measured.admit, ID, CLIENT, 9_999, **early) is ErrorCode.INVALID_REQUEST


def test_only_so_many_clients_are_remembered() -> None:
    measured = clients(a=ALL)
    measured.ask(ID, CLIENT, 0)
    for number in range(INSTANCES_MAX):
        measured.ask(number.to_bytes(16, "big"), CLIENT, 0)
    measured.ask(ID, CLIENT, 1)
    assert refusal(measured.ask, (5).to_bytes(16, "big"), CLIENT, 1) is ErrorCode.THROTTLED


# What is kept


class MetricsNode:
    """A node that asks everybody for everything."""

    def __init__(self, placement: Any) -> None:
        self.clock = ManualClock()
        self.written: list[str] = []
        self.metrics = Metrics()
        self.service = ClientMetricsService(
            placement, self.clock, self.metrics, self.written.append, lambda: ID
        )
        self.asked = self.service.subscription(NO_INSTANCE, CLIENT)

    def push(self, data: bytes, *, codec: int = 0, **changes: Any) -> None:
        self.clock.now_s += 1.0
        fields: dict[str, Any] = {"instance": ID, "subscription_id": self.asked.id}
        fields |= {"terminating": False, "codec": codec, "data": data}
        self.service.push(TelemetryPush(**(fields | changes)), CLIENT)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.written]


async def asking_node(admin: TopicsAdmin, configs: Mapping[str, str] = ALL) -> MetricsNode:
    await admin.configs.client_metrics.replace("sub", configs)
    return MetricsNode(admin._placement)


@pytest.fixture
async def admin() -> TopicsAdmin:
    return await topics_admin()


@pytest.fixture
async def node(admin: TopicsAdmin) -> MetricsNode:
    return await asking_node(admin)


@pytest.mark.parametrize("codec", range(5))
async def test_a_push_becomes_a_line(node: MetricsNode, codec: int) -> None:
    assert node.asked.instance == ID
    node.push(compression.compress(codec, SMALL), codec=codec, terminating=True)
    [line] = node.lines
    assert (line["time"], line["client_id"]) == ("2023-11-14T22:13:21.000Z", "app-1")
    assert (line["user"], line["address"]) == ("User:alice", "10.0.0.7")
    assert line["client_instance_id"] == "aW5zdGFuY2Ugb2YgdGVzdA"
    assert line["software"] == "apache-kafka-java 4.2.0"
    assert line["terminating"]
    values = {metric["name"]: metric["value"] for metric in line["metrics"]}
    assert values == {"org.a": 1.5, "org.b": 2}
    assert node.metrics.client_pushes == 1


async def test_only_what_was_asked_for_is_kept() -> None:
    node = await asking_node(await topics_admin(), {"metrics": "org.b", "interval.ms": "1000"})
    node.push(SMALL)
    assert [metric["name"] for metric in node.lines[0]["metrics"]] == ["org.b"]


async def test_of_whom_nothing_is_asked_nothing_is_kept() -> None:
    node = await asking_node(await topics_admin(), {"metrics": "*", "match": "client_id=nobody"})
    node.clock.now_s += 1_000
    node.push(b"not looked at")
    assert node.lines == []


async def test_a_changed_subscription_is_told_and_asked_for_again(
    node: MetricsNode, admin: TopicsAdmin
) -> None:
    node.push(SMALL)
    await admin.configs.client_metrics.replace("sub", {**ALL, "metrics": "org.a"})
    assert refusal(node.push, SMALL) is ErrorCode.UNKNOWN_SUBSCRIPTION
    node.asked = node.service.subscription(ID, CLIENT)
    assert node.asked.metrics == ("org.a",)
    node.push(SMALL)
    assert len(node.lines) == 2
    await admin.configs.client_metrics.replace("sub", {})
    assert admin.configs.client_metrics.names() == []
    assert refusal(node.push, SMALL) is ErrorCode.UNKNOWN_SUBSCRIPTION
    assert node.service.subscription(ID, CLIENT).metrics == ()


BOMB = compression.compress(compression.ZSTD, bytes(1 << 26))


@pytest.mark.parametrize(
    ("data", "changes", "code"),
    [
        (SMALL, {"instance": NO_INSTANCE}, ErrorCode.INVALID_REQUEST),
        (SMALL, {"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION),
        (SMALL, {"codec": 9}, ErrorCode.UNSUPPORTED_COMPRESSION),
        (SMALL, {"codec": 4}, ErrorCode.INVALID_RECORD),
        (SMALL[:-1], {}, ErrorCode.INVALID_RECORD),
        (bytes(PUSH_BYTES_MAX + 1), {}, ErrorCode.TELEMETRY_TOO_LARGE),
        (BOMB, {"codec": 4}, ErrorCode.TELEMETRY_TOO_LARGE),
        (
            otlp.pushed(otlp.gauge("g", *[otlp.point(1)] * (POINTS_PER_PUSH_MAX + 1))),
            {},
            ErrorCode.TELEMETRY_TOO_LARGE,
        ),
    ],
    ids=["no id", "unasked", "codec", "not zstd", "cut", "large", "bomb", "points"],
)
async def test_what_cannot_be_kept_is_refused(
    node: MetricsNode, data: bytes, changes: dict[str, Any], code: ErrorCode
) -> None:
    assert refusal(node.push, data, **changes) is code
    assert node.lines == []
    node.push(SMALL)
    assert len(node.lines) == 1, "the next one is welcome"
