import pytest
from tests.unit.queues.building import STREAM

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.message import Message
from mainstem.queues.admission.credit import Credit
from mainstem.queues.admission.watermarks import Pressure
from mainstem.queues.facts import Pointer
from mainstem.queues.routing.exchange import Binding, Destination, Exchange, ExchangeKind
from mainstem.queues.routing.message_routing import excluding
from mainstem.queues.routing.router import CursorMoved, RouteDecision, Router
from mainstem.queues.routing.topology import Topology
from mainstem.queues.settings import Overflow
from mainstem.queues.storage.fact_codec import ROUTER_CODEC

QUEUES = {"q", "r"}


def topology() -> Topology:
    made = Topology(QUEUES.__contains__)
    for fact in made.declare(Exchange(name="x", kind=ExchangeKind.TOPIC)):
        made.replay(fact)
    return made


def bind(made: Topology, queue: str, key: str) -> None:
    for fact in made.bind(Binding("x", Destination(is_queue=True, name=queue), key)):
        made.replay(fact)


def publish(router: Router, offset: int, key: str) -> list[tuple[str, list[int]]]:
    route = router.route("x", [key], {}, 10)
    router.reserve(route, 10)
    offers = router.on_appended([Pointer(offset, 10)], [route])
    return [(offer.queue, [each.offset for each in offer.pointers]) for offer in offers]


def test_a_message_is_matched_once_for_all_queues() -> None:
    made = topology()
    bind(made, "q", "a.*")
    bind(made, "q", "#")
    bind(made, "r", "a.b")
    router = Router(STREAM, made)

    assert sorted(publish(router, 0, "a.b")) == [("q", [0]), ("r", [0])]


def test_what_nobody_wants_is_known_before_it_is_appended() -> None:
    assert Router(STREAM, topology()).route("x", ["k"], {}, 1).queues == ()


def test_offers_of_a_burst_are_one_per_queue() -> None:
    made = topology()
    bind(made, "q", "#")
    bind(made, "r", "b")
    router = Router(STREAM, made)
    routes = [router.route("x", [key], {}, 1) for key in "abb"]

    offers = router.on_appended([Pointer(offset, 1) for offset in (5, 6, 7)], routes)

    found = {offer.queue: [each.offset for each in offer.pointers] for offer in offers}
    assert found == {"q": [5, 6, 7], "r": [6, 7]}


def test_the_cursor_stands_before_what_is_not_stored() -> None:
    made = topology()
    bind(made, "q", "a")
    bind(made, "r", "b")
    router = Router(STREAM, made)
    for offset, key in enumerate("abcc"):
        publish(router, offset, key)

    second = router.on_stored("r", 4)
    first = router.on_stored("q", 4)

    assert second is None
    assert first == CursorMoved(STREAM, 4, made.version)


def test_what_nobody_wants_moves_the_cursor() -> None:
    router = Router(STREAM, topology())
    publish(router, 0, "k")

    assert router.advance() == CursorMoved(STREAM, 1, 1)


def test_a_queue_that_is_gone_holds_nothing_up() -> None:
    made = topology()
    bind(made, "q", "a")
    router = Router(STREAM, made)
    publish(router, 0, "a")

    assert router.on_queue_gone("q") == CursorMoved(STREAM, 1, made.version)


def test_after_a_crash_messages_are_routed_as_the_first_time() -> None:
    made = topology()
    bind(made, "q", "#")
    router = Router(STREAM, made)
    first = publish(router, 0, "a")
    bind(made, "r", "#")
    taken = router.on_topology(1)
    second = publish(router, 1, "a")

    again = Router(STREAM, made, cursor=0, version=2)
    assert taken is not None
    fact = ROUTER_CODEC.decode(*ROUTER_CODEC.encode(taken))
    assert fact is not None
    again.replay(fact)
    offers = [again.on_replayed(Pointer(offset, 10), "x", ["a"], {}) for offset in (0, 1)]

    assert [queue for queue, _ in first] == ["q"] == [offer.queue for offer in offers[0]]
    assert [queue for queue, _ in second] == ["q", "r"] == [offer.queue for offer in offers[1]]


def test_a_dead_letter_keeps_out_of_excluded_queues_also_when_it_is_routed_again() -> None:
    made = topology()
    bind(made, "q", "a")
    router = Router(STREAM, made)
    headers = dict(excluding(Message(b"a", b"v"), ["q"]).headers)

    assert router.matched("x", ["a"], {}).queues == ("q",)
    assert router.matched("x", ["a"], headers).queues == ()
    assert router.on_replayed(Pointer(0, 10), "x", ["a"], headers) == []
    assert router.matched("x", ["a"], {"x-dead-letter-excluded": b"no list"}).queues == ("q",)


def test_a_stored_cursor_is_where_a_router_begins() -> None:
    made = topology()
    router = Router(STREAM, made)

    router.replay(CursorMoved(STREAM, 7, 1))

    assert (router.cursor, router.version_at(7)) == (7, 1)


def test_nothing_is_noted_where_nothing_changed() -> None:
    assert Router(STREAM, topology()).on_topology(5) is None


def test_an_internal_exchange_is_not_for_publishers() -> None:
    made = topology()
    for fact in made.declare(Exchange(name="i", kind=ExchangeKind.FANOUT, internal=True)):
        made.replay(fact)

    with pytest.raises(InvalidRequest) as refused:
        Router(STREAM, made).route("i", ["k"], {}, 1)

    assert refused.value.code is ErrorCode.RESERVED_NAME


@pytest.mark.parametrize(
    ("overflow", "expected"),
    [
        (Overflow.REJECT_PUBLISH, RouteDecision(("q", "r"), refused_by=("q",))),
        (
            Overflow.REJECT_PUBLISH_DLX,
            RouteDecision(("q", "r"), refused_by=("q",), dead_letters=("q",)),
        ),
        (Overflow.BLOCK, RouteDecision(("q", "r"), blocked_by=("q",))),
    ],
)
def test_a_queue_without_credit_says_no_before_the_append(
    overflow: Overflow, expected: RouteDecision
) -> None:
    made = topology()
    bind(made, "q", "#")
    bind(made, "r", "#")
    router = Router(STREAM, made)
    router.on_credit("q", overflow, Credit(1, None))

    publish(router, 0, "k")

    assert router.route("x", ["k"], {}, 10) == expected
    router.on_credit("q", overflow, Credit(1, 10))
    assert router.route("x", ["k"], {}, 10).is_free


def test_a_message_larger_than_the_credit_is_refused() -> None:
    made = topology()
    bind(made, "q", "#")
    router = Router(STREAM, made)
    router.on_credit("q", Overflow.REJECT_PUBLISH, Credit(5, 100))

    assert router.route("x", ["k"], {}, 100).is_free
    assert router.route("x", ["k"], {}, 101).refused_by == ("q",)


def test_a_queue_that_holds_all_it_may_is_closed() -> None:
    made = topology()
    bind(made, "q", "#")
    router = Router(STREAM, made)

    router.on_admission("q", is_open=False)
    closed = router.route("x", ["k"], {}, 1)
    router.on_admission("q", is_open=True)

    assert closed.refused_by == ("q",)
    assert router.route("x", ["k"], {}, 1).is_free


def test_publishes_are_refused_when_memory_is_short() -> None:
    router = Router(STREAM, topology())
    router.pressure = Pressure.REFUSE

    with pytest.raises(Unavailable) as refused:
        router.route("x", ["k"], {}, 1)

    assert refused.value.retriable
