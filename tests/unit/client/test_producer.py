"""The producer against a peer that keeps a log, loses answers and checks sequence numbers."""

import asyncio
import random

import pytest
from tests.unit.client.peer import HangUp, LogPeer

from mainstem.client.producer import Producer, ProducerSettings
from mainstem.client.values import RecordMetadata
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable

NOT_LEADER, TIMED_OUT, TOO_LARGE = 6, 7, 10


def values(count: int) -> list[bytes]:
    return [b"value %d" % number for number in range(count)]


async def send_all(
    peer: LogPeer, records: list[bytes], settings: ProducerSettings | None = None
) -> list[RecordMetadata]:
    async with Producer(peer.address, settings) as producer:
        deliveries = [await producer.send("t", value, partition=0) for value in records]
        await producer.flush()
        return [await delivery for delivery in deliveries]


async def test_records_are_batched_and_each_learns_its_offset() -> None:
    async with LogPeer() as peer:
        places = await send_all(peer, values(1000))
        offsets, batches, log = [place.offset for place in places], peer.batches, peer.logs[0]
    assert offsets == list(range(1000))
    assert batches < 20
    assert log == values(1000)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_arrives(codec: str) -> None:
    async with LogPeer() as peer:
        await send_all(peer, values(300), ProducerSettings(compression=codec))
        assert peer.logs[0] == values(300)


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_every_level_of_acknowledgement_delivers(acks: int | str) -> None:
    async with LogPeer() as peer:
        places = await send_all(peer, values(10), ProducerSettings(acks=acks))
        await asyncio.sleep(0.05)
        offsets, log = [place.offset for place in places], peer.logs[0]
    assert log == values(10)
    assert offsets == ([-1] * 10 if acks == 0 else list(range(10)))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("in_flight_max", [1, 5])
async def test_mishaps_neither_lose_nor_double_nor_reorder_records(
    seed: int, in_flight_max: int
) -> None:
    chance = random.Random(seed)

    def mishap(stored: bool) -> int:
        draw = chance.random()
        if draw < 0.1:
            raise HangUp
        # After storing, an error hides that the batch is there: the retry must not double it.
        return chance.choice([NOT_LEADER, TIMED_OUT]) if draw < 0.4 else 0

    settings = ProducerSettings(
        batch_bytes=300,
        in_flight_max=in_flight_max,
        linger_ms=0,
        request_bytes_max=600,
        retry_pause_ms=1,
    )

    async with LogPeer(partitions=2, mishap=mishap) as peer:
        async with Producer(peer.address, settings) as producer:
            deliveries = [
                await producer.send("t", value, partition=number % 2)
                for number, value in enumerate(values(300))
            ]
            await producer.flush()
            places = [await delivery for delivery in deliveries]
        logs = peer.logs
    assert logs == {0: values(300)[0::2], 1: values(300)[1::2]}
    for number, place in enumerate(places):
        assert place.offset in (-1, number // 2)


async def test_a_broker_that_lost_its_producer_state_gets_a_new_id_and_nothing_twice() -> None:
    async with LogPeer() as peer, Producer(peer.address) as producer:
        for value in values(5):
            await producer.send_and_wait("t", value)
        peer.forget_producers()
        for value in values(5):
            await producer.send_and_wait("t", value)
        log, asked = peer.logs[0], sum(name == "InitProducerId" for name, _, _ in peer.requests)
    assert log == values(5) * 2
    assert asked == 2


async def test_an_error_that_no_retry_heals_reaches_the_record() -> None:
    peer = LogPeer(mishap=lambda stored: TOO_LARGE)
    async with peer, Producer(peer.address) as producer:
        delivery = await producer.send("t", b"x")
        with pytest.raises(InvalidRequest) as caught:
            await delivery
        error = caught.value
    assert error.code is ErrorCode.RECORD_TOO_LARGE
    assert error.subject == "t-0"


async def test_the_records_after_a_refused_one_still_arrive() -> None:
    refused = iter([TOO_LARGE])

    async with LogPeer(mishap=lambda stored: 0 if stored else next(refused, 0)) as peer:
        async with Producer(peer.address) as producer:
            first = await producer.send("t", b"first")
            with pytest.raises(InvalidRequest):
                await first
            await producer.send_and_wait("t", b"second")
            await producer.send_and_wait("t", b"third")
        assert peer.logs[0] == [b"second", b"third"]


async def test_a_duplicate_counts_as_delivered_even_when_its_place_is_not_known() -> None:
    lost = iter([TIMED_OUT])

    peer = LogPeer(mishap=lambda stored: next(lost, 0) if stored else 0)
    peer.knows_where_duplicates_are = False
    async with peer, Producer(peer.address) as producer:
        place = await producer.send_and_wait("t", b"x")
        assert (place.offset, peer.logs[0]) == (-1, [b"x"])


async def test_retries_pause() -> None:
    refusals = iter([NOT_LEADER] * 3)

    peer = LogPeer(mishap=lambda stored: 0 if stored else next(refusals, 0))
    settings = ProducerSettings(retry_pause_ms=50)
    async with peer, Producer(peer.address, settings) as producer:
        began = asyncio.get_running_loop().time()
        await producer.send_and_wait("t", b"x")
        assert asyncio.get_running_loop().time() - began >= 0.15


async def test_a_failure_that_nobody_awaited_is_reported_by_flush() -> None:
    async with LogPeer(mishap=lambda stored: TOO_LARGE) as peer:
        producer = Producer(peer.address)
        await producer.send("t", b"x")
        with pytest.raises(InvalidRequest):
            await producer.flush()
        await producer.flush()  # once is enough
        await producer.close()


async def test_a_record_whose_time_is_up_fails() -> None:
    settings = ProducerSettings(delivery_timeout_ms=300, request_timeout_ms=100)

    peer = LogPeer(mishap=lambda stored: NOT_LEADER)
    async with peer, Producer(peer.address, settings) as producer:
        delivery = await producer.send("t", b"x")
        with pytest.raises(Unavailable) as caught:
            await delivery
        assert caught.value.retriable


async def test_send_waits_while_the_buffer_is_full() -> None:
    settings = ProducerSettings(buffer_bytes=20_000, batch_bytes=4_000, linger_ms=1)

    async with LogPeer() as peer, Producer(peer.address, settings) as producer:
        most = 0
        for value in values(2000):
            await producer.send("t", value)
            most = max(most, producer._sender.buffered_bytes)
        await producer.flush()
        log = peer.logs[0]
    assert most <= 20_000
    assert len(log) == 2000


async def test_a_buffer_that_stays_full_is_an_error() -> None:
    settings = ProducerSettings(
        buffer_bytes=100, block_timeout_ms=100, delivery_timeout_ms=1_000, linger_ms=0
    )

    async with LogPeer(mishap=lambda stored: NOT_LEADER) as peer:
        producer = Producer(peer.address, settings)
        await producer.send("t", b"x" * 60)
        with pytest.raises(Unavailable) as caught:
            await producer.send("t", b"y" * 60)
        await producer.close(timeout_ms=0)
        assert caught.value.code is ErrorCode.OVERLOADED


async def test_closing_without_time_fails_what_was_not_delivered() -> None:
    async with LogPeer(mishap=lambda stored: NOT_LEADER) as peer:
        producer = Producer(peer.address)
        delivery = await producer.send("t", b"x")
        await producer.close(timeout_ms=50)
        with pytest.raises(Unavailable) as caught:
            await delivery
        assert caught.value.code is ErrorCode.SHUTTING_DOWN


async def test_a_closed_producer_takes_nothing() -> None:
    async with LogPeer() as peer:
        async with Producer(peer.address) as producer:
            await producer.send_and_wait("t", b"x")
        with pytest.raises(InvalidRequest):
            await producer.send("t", b"y")


async def test_keys_go_where_they_hash_to_and_headers_travel() -> None:
    async with LogPeer(partitions=10) as peer, Producer(peer.address) as producer:
        place = await producer.send_and_wait(
            "t", b"v", key=b"key", headers=[("name", b"x"), ("none", None)], timestamp_ms=77
        )
    assert place == RecordMetadata("t", place.partition, 0, 77)


@pytest.mark.parametrize(
    "settings",
    [
        ProducerSettings(acks=2),
        ProducerSettings(acks=1, idempotent=True),
        ProducerSettings(in_flight_max=6),
        ProducerSettings(in_flight_max=0, idempotent=False),
        ProducerSettings(compression="brotli"),
    ],
)
async def test_settings_that_contradict_each_other_are_refused(settings: ProducerSettings) -> None:
    with pytest.raises(InvalidRequest):
        Producer("127.0.0.1:1", settings)


@pytest.mark.parametrize(
    ("partition", "timestamp_ms"), [(5, None), (-1, None), (None, 1 << 63), (None, -2)]
)
async def test_impossible_records_are_refused_at_once(
    partition: int | None, timestamp_ms: int | None
) -> None:
    async with LogPeer() as peer, Producer(peer.address) as producer:
        with pytest.raises(InvalidRequest):
            await producer.send("t", b"x", partition=partition, timestamp_ms=timestamp_ms)
