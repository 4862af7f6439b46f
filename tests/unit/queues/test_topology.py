from collections.abc import Iterable
from typing import Any

import pytest

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.queues.routing.exchange import (
    Binding,
    Destination,
    Exchange,
    ExchangeKind,
    exchange_of,
)
from mainstem.queues.routing.topology import Topology, TopologyFact
from mainstem.queues.storage.fact_codec import TOPOLOGY_CODEC

QUEUES = {"q", "r", "s"}


def topology() -> Topology:
    return Topology(QUEUES.__contains__)


def done(topology: Topology, facts: Iterable[TopologyFact]) -> list[TopologyFact]:
    taken = list(facts)
    for fact in taken:
        again = TOPOLOGY_CODEC.decode(*TOPOLOGY_CODEC.encode(fact))
        assert again == fact
        topology.replay(again)
    return taken


def declared(names: str, kind: str = "direct", **more: Any) -> Topology:
    made = topology()
    for name in names.split():
        done(made, made.declare(Exchange(name=name, kind=ExchangeKind(kind), **more)))
    return made


def to_queue(source: str, queue: str, key: str = "", **arguments: Any) -> Binding:
    return Binding(source, Destination(is_queue=True, name=queue), key, arguments)


def to_exchange(source: str, target: str, key: str = "") -> Binding:
    return Binding(source, Destination(is_queue=False, name=target), key)


def bound(topology: Topology, *bindings: Binding) -> None:
    for binding in bindings:
        done(topology, topology.bind(binding))


def route(topology: Topology, exchange: str, *keys: str, **headers: Any) -> list[str]:
    return sorted(topology.live.route(exchange, keys, headers))


def test_a_direct_exchange_goes_by_the_key() -> None:
    made = declared("x")
    bound(made, to_queue("x", "q", "a"), to_queue("x", "r", "a"), to_queue("x", "s", "b"))

    assert route(made, "x", "a") == ["q", "r"]
    assert route(made, "x", "c") == []


def test_a_fanout_exchange_goes_to_all() -> None:
    made = declared("x", "fanout")
    bound(made, to_queue("x", "q", "a"), to_queue("x", "r"))

    assert route(made, "x", "whatever") == ["q", "r"]


def test_a_topic_exchange_goes_by_patterns_each_queue_once() -> None:
    made = declared("x", "topic")
    bound(made, to_queue("x", "q", "a.#"), to_queue("x", "q", "*.b"), to_queue("x", "r", "#.b"))

    assert made.live.route("x", ["a.b"], {}) == ("q", "r")


def test_a_headers_exchange_goes_by_headers() -> None:
    made = declared("x", "headers")
    bound(made, to_queue("x", "q", "", **{"x-match": "any", "a": 1, "b": 2}))

    assert route(made, "x", "", b=2) == ["q"]
    assert route(made, "x", "", c=2) == []


def test_the_default_exchange_leads_to_the_queue_of_that_name() -> None:
    assert route(topology(), "", "q") == ["q"]
    assert route(topology(), "", "nobody") == []


def test_exchanges_that_every_client_expects_are_there() -> None:
    names = {exchange.name for exchange in topology().live}

    assert names >= {"", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"}


def test_exchanges_lead_on_to_exchanges_also_in_circles() -> None:
    made = declared("x y z", "fanout")
    bound(
        made,
        to_exchange("x", "y"),
        to_exchange("y", "z"),
        to_exchange("z", "x"),
        to_queue("y", "q"),
        to_queue("z", "q"),
        to_queue("z", "r"),
    )

    assert route(made, "x", "k") == ["q", "r"]


def test_what_an_exchange_cannot_route_goes_to_its_alternate() -> None:
    made = declared("lost", "fanout")
    done(made, made.declare(Exchange(name="x", kind=ExchangeKind.DIRECT, alternate="lost")))
    done(made, made.declare(Exchange(name="y", kind=ExchangeKind.DIRECT, alternate="never")))
    bound(made, to_queue("x", "q", "a"), to_queue("lost", "r"))

    assert route(made, "x", "a") == ["q"]
    assert route(made, "x", "b") == ["r"]
    assert route(made, "y", "b") == []


def test_what_went_on_to_an_exchange_does_not_go_to_the_alternate() -> None:
    made = declared("lost y", "fanout")
    done(made, made.declare(Exchange(name="x", kind=ExchangeKind.FANOUT, alternate="lost")))
    bound(made, to_exchange("x", "y"), to_queue("lost", "r"))

    assert route(made, "x", "k") == []


def test_several_keys_reach_each_queue_once() -> None:
    made = declared("x")
    bound(made, to_queue("x", "q", "a"), to_queue("x", "q", "b"), to_queue("x", "r", "b"))

    assert made.live.route("x", ["a", "b", "c"], {}) == ("q", "r")


def test_an_equal_binding_is_the_same_binding() -> None:
    made = declared("x")
    bound(made, to_queue("x", "q", "a"))

    assert made.bind(to_queue("x", "q", "a")) == []
    assert made.unbind(to_queue("x", "q", "b")) == []


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (lambda made: made.bind(to_queue("none", "q")), ErrorCode.UNKNOWN_EXCHANGE),
        (lambda made: made.bind(to_queue("x", "none")), ErrorCode.UNKNOWN_QUEUE),
        (lambda made: made.bind(to_exchange("x", "none")), ErrorCode.UNKNOWN_EXCHANGE),
        (lambda made: made.bind(to_queue("", "q", "k")), ErrorCode.RESERVED_NAME),
        (lambda made: made.declare(exchange_of("amq.mine", "topic", {})), ErrorCode.RESERVED_NAME),
        (lambda made: made.delete("amq.topic"), ErrorCode.RESERVED_NAME),
        (lambda made: made.delete(""), ErrorCode.RESERVED_NAME),
        (
            lambda made: made.declare(exchange_of("gone", "topic", {}), passive=True),
            ErrorCode.UNKNOWN_EXCHANGE,
        ),
        (lambda made: exchange_of("y", "x-strange", {}), ErrorCode.INVALID_ARGUMENT),
        (
            lambda made: exchange_of("y", "topic", {"alternate-exchange": 1}),
            ErrorCode.INVALID_ARGUMENT,
        ),
        (lambda made: made.live.route("none", ["k"], {}), ErrorCode.UNKNOWN_EXCHANGE),
        (lambda made: exchange_of("y" * 256, "topic", {}), ErrorCode.INVALID_ARGUMENT),
    ],
)
def test_what_cannot_be_is_refused(act: Any, code: ErrorCode) -> None:
    with pytest.raises(InvalidRequest) as refused:
        act(declared("x"))

    assert refused.value.code is code


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (Exchange(name="x", kind=ExchangeKind.TOPIC), "'type': received 'topic'"),
        (
            Exchange(name="x", kind=ExchangeKind.DIRECT, durable=False),
            "'durable': received 'false'",
        ),
        (
            Exchange(name="x", kind=ExchangeKind.DIRECT, alternate="y"),
            "'alternate-exchange': received 'y' but current is 'none'",
        ),
    ],
)
def test_a_declaration_that_differs_is_refused_by_name(wanted: Exchange, named: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        declared("x").declare(wanted)

    assert refused.value.code is ErrorCode.DECLARATION_DIFFERS
    assert named in refused.value.cause


def test_an_equal_declaration_changes_nothing() -> None:
    assert declared("x").declare(Exchange(name="x", kind=ExchangeKind.DIRECT)) == []


def test_an_exchange_takes_its_bindings_with_it() -> None:
    made = declared("x y", "fanout")
    bound(made, to_exchange("x", "y"), to_queue("y", "q"), to_queue("x", "r"))

    done(made, made.delete("y"))

    assert route(made, "x", "k") == ["r"]
    assert made.bindings_to(Destination(is_queue=True, name="q")) == []


def test_an_exchange_in_use_stays_where_that_is_asked_for() -> None:
    made = declared("x")
    bound(made, to_queue("x", "q", "a"))

    with pytest.raises(InvalidRequest) as refused:
        made.delete("x", if_unused=True)

    assert refused.value.code is ErrorCode.RESOURCE_IN_USE
    assert made.delete("unknown") == []


def test_an_exchange_that_deletes_itself_goes_with_its_last_binding() -> None:
    made = declared("x y", "fanout", auto_delete=True)
    bound(made, to_exchange("x", "y"), to_queue("y", "q"), to_queue("y", "r"))

    done(made, made.unbind(to_queue("y", "q")))
    still = "y" in made.live
    done(made, made.queue_gone("r"))

    assert still
    assert "y" not in made.live
    assert "x" not in made.live, "its last binding led to an exchange that is gone"


def test_transient_exchanges_do_not_outlive_a_restart() -> None:
    made = declared("x", durable=False)
    done(made, made.declare(Exchange(name="y", kind=ExchangeKind.FANOUT)))
    bound(made, to_queue("x", "q", "a"), to_queue("y", "q"), to_queue("y", "r"))

    QUEUES.discard("r")
    try:
        done(made, made.restarted())
    finally:
        QUEUES.add("r")

    assert "x" not in made.live
    assert route(made, "y", "k") == ["q"]


def test_messages_are_routed_by_the_version_that_held_for_them() -> None:
    made = declared("x", "topic")
    bound(made, to_queue("x", "q", "#"))
    then = made.version
    bound(made, to_queue("x", "r", "#"))
    done(made, made.unbind(to_queue("x", "q", "#")))

    assert made.table(then).route("x", ["k"], {}) == ("q",)
    assert set(made.table(then + 1).route("x", ["k"], {})) == {"q", "r"}
    assert made.table(made.version).route("x", ["k"], {}) == ("r",)


def test_a_snapshot_leads_to_the_same_topology_with_its_past() -> None:
    made = declared("x", "topic")
    bound(made, to_queue("x", "q", "#"))
    then = made.version
    done(made, made.unbind(to_queue("x", "q", "#")))
    bound(made, to_queue("x", "r", "a.*"))
    other = topology()

    done(other, made.snapshot())

    assert other.version == made.version
    assert other.table(then).route("x", ["k"], {}) == ("q",)
    assert route(other, "x", "a.b") == ["r"]
    other.forget(other.version)
    assert len(list(other.snapshot())) < len(list(made.snapshot()))


def test_a_thousand_queues_behind_an_exchange_cost_a_publish_one_look_up() -> None:
    made = declared("x", "fanout")
    names = [f"q{number}" for number in range(1_000)]
    QUEUES.update(names)
    try:
        bound(made, *(to_queue("x", name) for name in names))
    finally:
        QUEUES.difference_update(names)

    first = made.live.route("x", ["k"], {})
    second = made.live.route("x", ["other"], {})

    assert len(first) == 1_000
    assert second is first, "the answer is remembered, not made again"
