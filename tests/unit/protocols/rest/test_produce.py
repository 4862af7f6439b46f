"""Messages posted over HTTP are stored as a Kafka client would store them."""

import asyncio
import base64
import json

import pytest
from tests.unit.protocols.rest.counter import NOW_MS, Rest

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.records.batch import read_header
from mainstem.model.records.murmur2 import partition_of_key
from mainstem.model.records.record import Record, records_of
from mainstem.protocols.rest.handlers import produce as produce_module


def stored(rest: Rest, topic: str = "t", partition: int = 0) -> list[Record]:
    batches = rest.counter.partition(topic, partition).batches
    return [record for batch in batches for record in records_of(batch)]


async def test_the_answer_has_the_names_that_strikemq_gave_it(rest: Rest) -> None:
    answer = await rest.post("t", {"messages": [{"key": "k", "value": "v"}, {"value": "w"}]})
    assert answer.status_code == 200
    body = answer.json()
    assert {name: body[name] for name in ("topic", "partition", "base_offset", "record_count")} == {
        "topic": "t",
        "partition": 0,
        "base_offset": 0,
        "record_count": 2,
    }
    assert body["offsets"] == [{"partition": 0, "offset": 0}, {"partition": 0, "offset": 1}]
    assert stored(rest) == [Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS, None, b"w")]


@pytest.mark.parametrize(
    ("described", "key", "value"),
    [
        ({"value": "text"}, None, b"text"),
        ({"value": "grüße"}, None, "grüße".encode()),
        ({"value": None, "key": "k"}, b"k", None),
        ({"value": "", "key": ""}, b"", b""),
        ({"value": "AP8=", "value_encoding": "base64"}, None, b"\x00\xff"),
        ({"value": "v", "key": "AP8=", "key_encoding": "base64"}, b"\x00\xff", b"v"),
        ({"value": {"a": [1, 2.5, True]}, "key": 7}, b"7", b'{"a":[1,2.5,true]}'),
        ({"value": False}, None, b"false"),
    ],
)
async def test_a_value_is_text_base64_or_any_json(
    rest: Rest, described: object, key: bytes | None, value: bytes | None
) -> None:
    answer = await rest.http.post(
        "/v1/topics/t/messages",
        content=json.dumps(described, ensure_ascii=False, separators=(",", ":")),
    )
    assert answer.status_code == 200, answer.text
    [record] = stored(rest)
    assert (record.key, record.value) == (key, value)


async def test_headers_may_be_an_object_or_a_list_with_repeats_and_bytes(rest: Rest) -> None:
    await rest.post("t", {"value": "v", "headers": {"a": "1", "b": None}})
    listed = [
        {"name": "a", "value": "1"},
        {"name": "a", "value": "AP8=", "encoding": "base64"},
        {"name": "n", "value": None},
    ]
    await rest.post("t", {"value": "v", "headers": listed})
    first, second = stored(rest)
    assert first.headers == (("a", b"1"), ("b", None))
    assert second.headers == (("a", b"1"), ("a", b"\x00\xff"), ("n", None))


@pytest.mark.parametrize("shape", ["one", "list", "object"])
async def test_one_message_a_list_and_an_object_with_a_list_are_all_understood(
    rest: Rest, shape: str
) -> None:
    message = {"value": "v"}
    body = {"one": message, "list": [message], "object": {"messages": [message]}}[shape]
    answer = await rest.post("t", body)
    assert answer.json()["record_count"] == 1


async def test_curl_needs_no_content_type(rest: Rest) -> None:
    answer = await rest.http.post(
        "/v1/topics/t/messages",
        content=b'{"messages":[{"key":"k","value":"v"}]}',
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert answer.status_code == 200
    assert stored(rest)[0].key == b"k"


async def test_a_raw_body_is_the_value_as_it_stands(rest: Rest) -> None:
    value = bytes(range(256))
    answer = await rest.http.post(
        "/v1/topics/t/messages",
        content=value,
        headers={"content-type": "application/octet-stream"},
        params={"key": "k", "timestamp": "1234"},
    )
    assert answer.status_code == 200
    assert stored(rest) == [Record(0, 1234, b"k", value)]


async def test_keys_go_where_kafka_clients_send_them(rest: Rest) -> None:
    await rest.topic("t", 5)
    keys = [f"key-{n}" for n in range(40)]
    answer = await rest.post("t", [{"key": key, "value": key} for key in keys])
    for key, place in zip(keys, answer.json()["offsets"], strict=True):
        assert place["partition"] == partition_of_key(key.encode(), 5)
        assert stored(rest, "t", place["partition"])[place["offset"]].value == key.encode()


async def test_messages_without_a_key_stay_together_and_move_on_with_each_request(
    rest: Rest,
) -> None:
    await rest.topic("t", 3)
    used = []
    for _ in range(3):
        answer = await rest.post("t", [{"value": "a"}, {"value": "b"}])
        [partition] = {place["partition"] for place in answer.json()["offsets"]}
        used.append(partition)
    assert sorted(used) == [0, 1, 2]


async def test_a_partition_can_be_named_in_message_body_and_query(rest: Rest) -> None:
    await rest.topic("t", 3)
    body = {
        "messages": [{"value": "a", "partition": 2, "key": "k"}, {"value": "b"}],
        "partition": 1,
    }
    places = (await rest.post("t", body)).json()["offsets"]
    assert [place["partition"] for place in places] == [2, 1]
    places = (await rest.post("t", {"value": "c"}, partition=2)).json()["offsets"]
    assert places == [{"partition": 2, "offset": 1}]


async def test_the_answer_waits_until_the_messages_are_committed(rest: Rest) -> None:
    await rest.topic("t")
    held = rest.counter.partition("t", 0).held = asyncio.Event()
    waiting = asyncio.create_task(rest.post("t", {"value": "v"}))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    held.set()
    assert (await waiting).status_code == 200


async def test_a_commit_that_never_comes_is_a_504(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rest.topic("t")
    rest.counter.partition("t", 0).held = asyncio.Event()
    monkeypatch.setattr(produce_module, "COMMIT_TIMEOUT_S", 0.05)
    answer = await rest.post("t", {"value": "v"})
    assert answer.status_code == 504
    assert answer.json()["code"] == "TIMED_OUT"


async def test_what_was_stored_is_said_even_where_a_partition_refused(rest: Rest) -> None:
    await rest.topic("t", 2)
    rest.counter.partition("t", 1).refusal = Unavailable(ErrorCode.DISK_FULL, "no space left")
    answer = await rest.post("t", [{"value": "a", "partition": 0}, {"value": "b", "partition": 1}])
    assert answer.status_code == 507
    assert answer.headers["retry-after"] == "1"
    body = answer.json()
    assert body["code"] == "DISK_FULL"
    assert body["parts"] == [
        {"partition": 0, "record_count": 1, "base_offset": 0, "code": None, "cause": None},
        {
            "partition": 1,
            "record_count": 1,
            "base_offset": None,
            "code": "DISK_FULL",
            "cause": "no space left",
        },
    ]


async def test_many_large_messages_are_cut_into_batches_in_their_order(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_module, "BATCH_BYTES_TARGET", 2_000)
    values = [str(n) * 100 for n in range(60)]
    answer = await rest.post("t", [{"value": value} for value in values])
    assert answer.status_code == 200, answer.text
    batches = rest.counter.partition("t", 0).batches
    assert len(batches) > 3
    assert max(map(len, batches)) <= 2_000
    assert [read_header(batch).base_offset for batch in batches] == sorted(
        read_header(batch).base_offset for batch in batches
    )
    assert [record.value for record in stored(rest)] == [value.encode() for value in values]
    assert [place["offset"] for place in answer.json()["offsets"]] == list(range(60))


async def test_an_unknown_topic_is_created_only_where_that_is_allowed(rest: Rest) -> None:
    rest.counter.auto_create = False
    answer = await rest.post("absent", {"value": "v"})
    assert answer.status_code == 404
    assert answer.json()["code"] == "UNKNOWN_TOPIC"


async def test_topics_of_the_node_itself_are_not_written_by_clients(rest: Rest) -> None:
    await rest.topic("__consumer_offsets", internal=True)
    answer = await rest.post("__consumer_offsets", {"value": "v"})
    assert answer.status_code == 403
    assert stored(rest, "__consumer_offsets") == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"null",
        b"7",
        b"[]",
        b"{}",
        b'{"messages":[]}',
        b'{"messages":[{}]}',
        b'{"messages":[{"key":"k"}]}',
        b'{"messages":{"value":"v"}}',
        b'{"value":"v","vlaue":"w"}',
        b'{"value":"v","partition":-1}',
        b'{"value":"v","partition":99}',
        b'{"value":"v","partition":1e3}',
        b'{"value":"v","timestamp":-1}',
        b'{"value":"v","timestamp":9223372036854775808}',
        b'{"value":"v","timestamp":"now"}',
        b'{"value":"v","value_encoding":"hex"}',
        b'{"value":"***","value_encoding":"base64"}',
        b'{"value":7,"value_encoding":"base64"}',
        b'{"value":"v","headers":{"a":1}}',
        b'{"value":"v","headers":[{"value":"1"}]}',
        b'{"value":"\\ud800"}',
        b'{"value":"\xff"}',
        b'{"value":{"a":"\xff"}}',
        b'{"value":' + b"[" * 9_000 + b"]" * 9_000 + b"}",
        b'{"other":' + b"[" * 9_000 + b"]" * 9_000 + b"}",
        b"[" * 19_000,
    ],
)
async def test_a_body_that_makes_no_sense_is_a_400_with_a_reason_and_stores_nothing(
    rest: Rest, body: bytes
) -> None:
    await rest.topic("t")
    answer = await rest.http.post("/v1/topics/t/messages", content=body)
    assert answer.status_code in (400, 404), answer.text  # 404: a partition that does not exist
    assert answer.json()["cause"]
    assert stored(rest) == []


async def test_base64_is_read_strictly(rest: Rest) -> None:
    good = base64.b64encode(b"\xfb\xff").decode()
    assert (await rest.post("t", {"value": good, "value_encoding": "base64"})).status_code == 200
    for bad in (good[:-1], good + "\n", "-_8=", "AA", " AP8="):
        answer = await rest.post("t", {"value": bad, "value_encoding": "base64"})
        assert answer.status_code == 400, bad


@pytest.mark.parametrize(
    "kind", ["application/xml", "multipart/form-data; boundary=x", "image/png"]
)
async def test_an_unknown_media_type_is_a_415(rest: Rest, kind: str) -> None:
    answer = await rest.http.post(
        "/v1/topics/t/messages", content=b"x", headers={"content-type": kind}
    )
    assert answer.status_code == 415
    assert "application/json" in answer.json()["remedy"]


async def test_a_compressed_body_is_a_415_and_is_never_unpacked(rest: Rest) -> None:
    answer = await rest.http.post(
        "/v1/topics/t/messages", content=b"\x1f\x8b", headers={"content-encoding": "gzip"}
    )
    assert answer.status_code == 415


async def test_a_body_over_the_limit_is_refused_while_it_arrives(rest: Rest) -> None:
    answer = await rest.post("t", {"value": "x" * 20_001})
    assert answer.status_code == 413
    assert answer.json()["code"] == "BODY_TOO_LARGE"
    assert "t" not in [topic.name for topic in rest.counter.all()]


async def test_parameters_of_a_raw_body_are_refused_beside_json(rest: Rest) -> None:
    answer = await rest.post("t", {"value": "v"}, key="k")
    assert answer.status_code == 400
    assert answer.json()["subject"] == "key"
