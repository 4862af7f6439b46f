import pytest
from tests.unit.queues.building import NOW, STREAM, offer, pointers, queue_of, reader

from mainstem.queues.admission.credit import NOTHING, Credit, CreditBalance, CreditLender
from mainstem.queues.admission.watermarks import Pressure, WatermarkLevels, Watermarks
from mainstem.queues.engine.effects import AdmissionChanged
from mainstem.queues.engine.settling import ACKNOWLEDGE
from mainstem.queues.settings import Overflow


def test_a_queue_lends_no_more_than_is_free() -> None:
    queue = queue_of(max_length=5, overflow=Overflow.REJECT_PUBLISH)
    offer(queue, 1, 2)

    first = queue.admission.lend("r1", Credit(2, None))
    second = queue.admission.lend("r2", Credit(9, None))
    third = queue.admission.lend("r3", Credit(1, None))

    assert (first.messages, second.messages, third) == (2, 1, NOTHING)


def test_credit_comes_back_with_the_offer_that_used_it() -> None:
    queue = queue_of(max_length=3, overflow=Overflow.REJECT_PUBLISH)
    queue.admission.lend("r1", Credit(2, None))

    queue.on_offered(STREAM, pointers(1, 2), NOW, router="r1")

    assert queue.admission.lent.messages == 0
    assert queue.admission.lend("r1", Credit(9, None)).messages == 1


def test_a_router_that_got_nothing_is_told_when_there_is_room() -> None:
    queue = queue_of(max_length=1, overflow=Overflow.BLOCK)
    offer(queue, 1)
    queue.admission.lend("r1", Credit(1, None))

    taken = queue.on_get("s", NOW)
    told = queue.on_settled("s", [taken.deliveries[0].number], ACKNOWLEDGE, NOW)

    assert taken.notices == [AdmissionChanged(0, is_open=True)]
    assert not told.notices, "once is enough"


def test_a_router_that_is_gone_gives_its_credit_back() -> None:
    queue = queue_of(max_length=1, overflow=Overflow.REJECT_PUBLISH)
    queue.admission.lend("r1", Credit(1, None))

    queue.admission.router_gone("r1")

    assert queue.admission.lend("r2", Credit(1, None)).messages == 1


def test_bytes_are_lent_as_well() -> None:
    queue = queue_of(max_length_bytes=100, overflow=Overflow.REJECT_PUBLISH)
    offer(queue, 1)

    assert queue.admission.lend("r1", Credit(1_000, 60)).size_bytes == 60
    assert queue.admission.lend("r1", Credit(1_000, 60)).size_bytes == 30
    assert queue.admission.lend("r1", Credit(1_000, 60)) == NOTHING


def test_a_queue_that_refuses_never_drops() -> None:
    queue = queue_of(max_length=1, overflow=Overflow.REJECT_PUBLISH)
    queue.on_consume(reader("a"), NOW)
    offer(queue, 1, 2, 3)

    effects = queue.on_gone("a", NOW)

    assert not effects.dropped, "what came back may exceed the limit"
    assert queue.admission.lend("r", Credit(1, None)) == NOTHING


def test_a_purse_pays_by_message_and_by_bytes() -> None:
    purse = CreditBalance()
    purse.put(Credit(2, 50))
    purse.pay(40)

    assert (purse.can_pay(10), purse.can_pay(11)) == (True, False)
    purse.put(Credit(1, None))
    assert purse.can_pay(10**9)


def test_a_lender_forgets_what_nobody_borrowed() -> None:
    lender = CreditLender()

    lender.used("stranger", 5, 50)

    assert lender.lent == Credit(0, 0)


@pytest.mark.parametrize(
    ("used", "levels"),
    [
        ([79, 80, 90, 95], [Pressure.ACCEPT, Pressure.SLOW, Pressure.REFUSE, Pressure.OVERFLOW]),
        ([100, 91, 89, 84, 74], [3, 3, 2, 1, 0]),
        ([96, 10], [3, 0]),
        ([82, 76, 82], [1, 1, 1]),
    ],
)
def test_levels_are_left_below_where_they_were_entered(
    used: list[int], levels: list[Pressure]
) -> None:
    watermarks = Watermarks(100)

    assert [watermarks.on_used(each) for each in used] == levels


def test_watermarks_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="not in order"):
        WatermarkLevels(slow=95, refuse=90)
