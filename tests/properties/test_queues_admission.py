"""Credit and bytes under everything that may come."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.model.errors import Corrupt
from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.queues.admission.credit import Credit, CreditBalance
from mainstem.queues.engine.queue_machine import Queue
from mainstem.queues.facts import Pointer, PointersAdded, QueueDeclared, RemovalReason, Settled
from mainstem.queues.settings import Overflow, QueueName, QueueSettings
from mainstem.queues.storage.fact_codec import QUEUE_CODEC, ROUTER_CODEC, TOPOLOGY_CODEC

STREAM = StreamId(TopicId(bytes(16)), PartitionIndex(0))
STEPS = st.lists(
    st.tuples(st.just("lend"), st.integers(0, 2), st.integers(1, 5), st.integers(1, 80))
    | st.tuples(st.just("publish"), st.integers(0, 2), st.just(1), st.integers(0, 10))
    | st.tuples(st.just("take"), st.just(0), st.just(1), st.just(1)),
    min_size=20,
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(
    steps=STEPS,
    max_length=st.integers(1, 6) | st.none(),
    max_length_bytes=st.none() | st.none() | st.integers(0, 100),
)
def test_publishing_with_credit_never_overfills_a_queue_that_refuses(
    steps: list[tuple[str, int, int, int]], max_length: int | None, max_length_bytes: int | None
) -> None:
    declared = QueueSettings(
        max_length=max_length,
        max_length_bytes=max_length_bytes,
        overflow=Overflow.REJECT_PUBLISH,
    )
    queue = Queue(0, declared, 1)
    purses = [CreditBalance() for _ in range(3)]
    offset = 0
    for verb, number, messages, size_bytes in steps:
        purse, router = purses[number], f"router {number}"
        if verb == "lend":
            purse.put(queue.admission.lend(router, Credit(messages, size_bytes)))
        elif verb == "take":
            queue.on_get("somebody", 1, no_ack=True)
        elif purse.can_pay(size_bytes):
            purse.pay(size_bytes)
            offset += 1
            effects = queue.on_offered(STREAM, (Pointer(offset, size_bytes),), 1, router)
            assert not effects.dropped
        waiting = queue.body.waiting
        assert max_length is None or waiting.messages <= max_length
        assert max_length_bytes is None or (waiting.size_bytes or 0) <= max_length_bytes


SAMPLES = [
    QUEUE_CODEC.encode(QueueDeclared(1, QueueName("/", "q"), QueueSettings())),
    QUEUE_CODEC.encode(PointersAdded(1, 2, STREAM, (Pointer(3, 4),))),
    QUEUE_CODEC.encode(Settled(1, 0, ((1, 2),), RemovalReason.EXPIRED)),
]


@settings(max_examples=300, deadline=None)
@given(data=st.data(), noise=st.binary(max_size=40))
def test_bytes_are_a_fact_or_corrupt_and_nothing_else(data: st.DataObject, noise: bytes) -> None:
    key, value = data.draw(st.sampled_from(SAMPLES))
    assert value is not None
    place = data.draw(st.integers(0, len(value)))
    damaged = value[:place] + noise + value[data.draw(st.integers(place, len(value))) :]

    for decode in (QUEUE_CODEC.decode, TOPOLOGY_CODEC.decode, ROUTER_CODEC.decode):
        with suppress(Corrupt):
            decode(key, damaged)
