"""Looking at messages: the window that was asked for, bounded, and never a crash."""

import asyncio
from typing import Any

import pytest
from tests.unit.protocols.rest.counter import NOW_MS, Rest

from mainstem.model.errors import Unavailable
from mainstem.model.records.batch import read_header
from mainstem.model.records.record import Record, build_batch
from mainstem.protocols.rest import window as window_module


async def filled(rest: Rest, batches: list[int], codec: int = 0) -> None:
    """Topic ``t`` with batches of so many records; each value is its offset."""
    await rest.topic("t")
    offset = 0
    for count in batches:
        records = [
            Record(0, NOW_MS + offset + n, b"k", str(offset + n).encode()) for n in range(count)
        ]
        await rest.counter.append("t", 0, build_batch(records, codec=codec))
        offset += count


def values(answer: Any) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [int(message["value"]) for message in answer.json()]


async def test_a_message_has_the_names_that_strikemq_gave_it_and_more(rest: Rest) -> None:
    await rest.post("t", {"key": "k", "value": "v", "headers": {"h": "1"}, "timestamp": 5})
    [message] = (await rest.peek("t")).json()
    assert message == {
        "offset": 0,
        "timestamp": 5,
        "key": "k",
        "value": "v",
        "partition": 0,
        "key_encoding": "text",
        "value_encoding": "text",
        "headers": [{"name": "h", "value": "1", "encoding": "text"}],
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, range(10)),
        ({"offset": 0, "limit": 3}, range(3)),
        ({"offset": 4, "limit": 3}, range(4, 7)),
        ({"offset": 9}, range(9, 10)),
        ({"offset": 10}, range(0)),
        ({"offset": "earliest", "limit": 1}, range(1)),
        ({"offset": "latest"}, range(0)),
        ({"offset": -2}, range(8, 10)),
        ({"offset": -(2**63)}, range(10)),
        ({"from_timestamp": NOW_MS + 5}, range(5, 10)),
        ({"from_timestamp": NOW_MS + 50}, range(0)),
        ({"from_timestamp": "2000-01-01T00:00:00Z"}, range(10)),
        ({"from_timestamp": "2200-01-01"}, range(0)),
    ],
)
@pytest.mark.parametrize("codec", [0, 1, 4])
async def test_a_window_begins_and_ends_where_it_was_asked_to(
    rest: Rest, query: dict[str, str | int], expected: range, codec: int
) -> None:
    await filled(rest, [5, 5], codec)
    answer = await rest.peek("t", **query)
    assert values(answer) == list(expected)
    assert answer.headers["mainstem-end-offset"] == "10"
    if expected:
        assert answer.headers["mainstem-next-offset"] == str(expected[-1] + 1)


async def test_nothing_beyond_what_is_committed_is_shown(rest: Rest) -> None:
    await filled(rest, [5])
    stream = rest.counter.partition("t", 0)
    stream.held = asyncio.Event()
    waiting = asyncio.create_task(rest.post("t", {"value": "5"}))
    await asyncio.sleep(0.05)
    assert values(await rest.peek("t")) == list(range(5))
    stream.held.set()
    await waiting
    assert values(await rest.peek("t")) == list(range(6))


async def test_nothing_of_an_open_transaction_is_shown(rest: Rest) -> None:
    await filled(rest, [2, 2])
    rest.counter.partition("t", 0).last_stable = 2
    answer = await rest.peek("t")
    assert values(answer) == [0, 1]
    assert answer.headers["mainstem-end-offset"] == "2"


async def test_bytes_that_are_no_text_are_shown_in_base64_and_can_be_posted_again(
    rest: Rest,
) -> None:
    original = {
        "key": "AP8=",
        "key_encoding": "base64",
        "value": "/w==",
        "value_encoding": "base64",
        "headers": [{"name": "h", "value": "/w==", "encoding": "base64"}],
    }
    await rest.post("t", original)
    [first] = (await rest.peek("t")).json()
    assert (first["key"], first["value"]) == ("AP8=", "/w==")
    assert (await rest.post("t", [first])).status_code == 200
    _, second = (await rest.peek("t")).json()
    del first["offset"], second["offset"]
    assert first == second


async def test_the_encoding_can_be_chosen(rest: Rest) -> None:
    await rest.post("t", {"value": "abc"})
    await rest.post("t", {"value": "/w==", "value_encoding": "base64"})
    as_base64 = (await rest.peek("t", encoding="base64")).json()
    assert [message["value"] for message in as_base64] == ["YWJj", "/w=="]
    as_text = (await rest.peek("t", encoding="text")).json()
    assert [message["value"] for message in as_text] == ["abc", "\ufffd"]


async def test_a_tombstone_has_no_value(rest: Rest) -> None:
    await rest.post("t", {"key": "k", "value": None})
    [message] = (await rest.peek("t")).json()
    assert message["value"] is None


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"limit": "abc"}, 400),
        ({"limit": "0"}, 400),
        ({"limit": "-1"}, 400),
        ({"limit": "10001"}, 400),
        ({"limit": "1e3"}, 400),
        ({"limit": "1_0"}, 400),
        ({"limit": "\u0661"}, 400),
        ({"limit": ""}, 400),
        ({"limit": "9" * 5_000}, 400),
        ({"offset": "abc"}, 400),
        ({"offset": "9223372036854775808"}, 400),
        ({"offset": "-9223372036854775809"}, 400),
        ({"offset": "9223372036854775807"}, 416),
        ({"offset": "11"}, 416),
        ({"partition": "-1"}, 400),
        ({"partition": "1"}, 404),
        ({"partition": "99999999999"}, 400),
        ({"from_timestamp": "yesterday"}, 400),
        ({"from_timestamp": "9223372036854775808"}, 400),
        ({"from_timestamp": "1", "offset": "1"}, 400),
        ({"encoding": "hex"}, 400),
        ({"limt": "1"}, 400),
    ],
)
async def test_a_parameter_that_makes_no_sense_is_refused_with_a_reason(
    rest: Rest, query: dict[str, str], status: int
) -> None:
    await filled(rest, [10])
    answer = await rest.peek("t", **query)
    assert answer.status_code == status, answer.text
    problem = answer.json()
    assert problem["cause"]
    assert set(problem) == {"code", "cause", "subject", "remedy"}
    assert len(answer.text) < 2_000


async def test_a_misspelt_parameter_is_told_the_right_name(rest: Rest) -> None:
    await filled(rest, [1])
    answer = await rest.peek("t", limt=1)
    assert answer.json()["remedy"] == "did you mean limit?"
    twice = await rest.http.get("/v1/topics/t/messages?limit=1&limit=2")
    assert twice.status_code == 400


async def test_damage_is_answered_as_corruption_and_what_lies_before_it_is_shown(
    rest: Rest,
) -> None:
    await filled(rest, [3, 3, 3])
    batches = rest.counter.partition("t", 0).batches
    damaged = bytearray(batches[1])
    damaged[-1] ^= 1
    batches[1] = bytes(damaged)
    before = await rest.peek("t")
    assert values(before) == [0, 1, 2]
    assert before.headers["mainstem-damaged-offset"] == "3"
    at = await rest.peek("t", offset=3)
    assert at.status_code == 500
    assert at.json()["code"] == "CORRUPT"
    assert values(await rest.peek("t", offset=6)) == [6, 7, 8]


async def test_a_compressed_bomb_is_answered_within_bounds(rest: Rest) -> None:
    await rest.topic("t")
    bomb = build_batch([Record(0, NOW_MS, None, bytes(64 << 20))], codec=4)
    assert len(bomb) < 100_000
    await rest.counter.append("t", 0, bomb)
    answer = await rest.peek("t")
    assert answer.status_code == 500
    assert answer.json()["code"] == "CORRUPT"


async def test_records_are_decoded_only_until_the_window_is_full(rest: Rest) -> None:
    await filled(rest, [2, 2])
    batches = rest.counter.partition("t", 0).batches
    batches[1] = bytes(len(batches[1]))  # would be corrupt if it were looked at
    header = read_header(batches[0])
    assert header.until_offset == 2
    assert values(await rest.peek("t", limit=2)) == [0, 1]


async def test_an_answer_ends_when_it_is_large_and_says_where_to_go_on(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_module, "ANSWER_BYTES_MAX", 1_000)
    await filled(rest, [40])
    seen: list[int] = []
    at = "0"
    while at != "40":
        answer = await rest.peek("t", offset=at)
        assert 0 < len(values(answer)) < 10
        seen += values(answer)
        at = answer.headers["mainstem-next-offset"]
    assert seen == list(range(40))


async def test_offsets_that_compaction_took_leave_a_gap(rest: Rest) -> None:
    await rest.topic("t")
    stream = rest.counter.partition("t", 0)
    batch = build_batch([Record(0, NOW_MS, b"k", b"4")])
    await rest.counter.append("t", 0, batch)
    gap = bytearray(stream.batches[0])
    gap[0:8] = (4).to_bytes(8, "big")
    stream.batches[0] = bytes(gap)
    stream.next_offset = stream.committed = stream.last_stable = 5
    assert values(await rest.peek("t", offset=1)) == [4]


async def test_too_many_waiting_readers_are_sent_away(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_module, "WINDOWS_WAITING_MAX", 0)
    await filled(rest, [1])
    answer = await rest.peek("t")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["code"] == "OVERLOADED"


async def test_answers_that_together_hold_too_much_memory_are_refused(rest: Rest) -> None:
    await filled(rest, [1])
    rest.site.held.take(rest.site.held._left)
    answer = await rest.peek("t")
    assert answer.status_code == 503
    with pytest.raises(Unavailable):
        rest.site.held.take(1)


async def test_reading_is_counted(rest: Rest) -> None:
    await filled(rest, [4])
    await rest.peek("t", limit=3)
    assert rest.metrics.messages_out == 3
