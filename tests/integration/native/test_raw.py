"""The page of the protocol is all that a client needs; and bytes that no client would send."""

import struct
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from tests.integration.native.raw_client import RawClient
from tests.integration.several import node_under_test

from mainstem.testing.local_node import LocalNode

MIB = 1 << 20


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    """A node that must survive everything in this file."""
    arguments = ("--set", "native.enabled=true", "--set", "security.login_timeout_ms=1500")
    with node_under_test(arguments) as made:
        pid = made.pid
        yield made
        assert made.pid == pid
        assert "Traceback" not in made.log_text(), made.log_tail()
        assert made.stop() == 0


@pytest.fixture
def client(node: LocalNode) -> Iterator[RawClient]:
    with RawClient(node.native) as made:
        assert made.connect()["type"] == "connected"
        yield made


def memory_bytes(node: LocalNode) -> int:
    return int(psutil.Process(node.pid).memory_info().rss)


def test_every_word_of_the_page_is_answered(client: RawClient) -> None:
    ask = client.ask
    assert ask("declare-queue", name="page")["is_new"] is True
    assert "is_new" not in ask("declare-queue", name="page", passive=True)
    assert ask("declare-exchange", name="page-x", kind="topic") == {"type": "ok"}
    assert ask("bind", exchange="page-x", to="page", key="a.#") == {"type": "ok"}
    bound = {"exchange": "page-x", "to": "page", "key": "a.#"}
    assert bound in ask("list-bindings")["bindings"]
    assert "page-x" in {each["name"] for each in ask("list-exchanges")["exchanges"]}
    messages = [{"value": b"1", "key": b"a.b"}, {"value": b"2", "key": b"b"}]
    answer = ask("publish", exchange="page-x", messages=messages)
    assert answer == {"type": "published", "stored": 2, "unrouted": [1]}
    client.tell("publish", key="page", messages=[{"value": b"3"}], durability="none")
    assert ask("ping") == {"type": "pong"}
    deadline = time.monotonic() + 10  # nobody says when an unconfirmed message is there
    while ask("describe-queue", name="page")["queues"][0].get("ready", 0) < 2:
        assert time.monotonic() < deadline
    shown = ask("browse-queue", name="page")["messages"]
    assert [each["message"]["value"] for each in shown] == [b"1", b"3"]
    got = ask("get", queue="page")
    assert (got["delivery"]["message"]["value"], got["left"]) == (b"1", 1)
    assert ask("nack", subscription=0, numbers=[got["delivery"]["number"]], failed=False)
    assert ask("subscribe", subscription=7, queue="page", window=2, credit=1) == {"type": "ok"}
    [first] = client.next_news()["deliveries"]
    assert (first["message"]["value"], first["attempt"], first["exchange"]) == (b"1", 2, "page-x")
    assert ask("ack", subscription=7, numbers=[first["number"]]) == {"type": "ok"}
    assert ask("credit", subscription=7, messages=1) == {"type": "ok"}
    [second] = client.next_news()["deliveries"]
    assert ask("reject", subscription=7, numbers=[second["number"]], reason="bad-payload")
    assert ask("unsubscribe", subscription=7) == {"type": "ok"}
    assert ask("purge-queue", name="page") == {"type": "counted", "messages": 0}
    assert ask("move-messages", name="page", to="page")["messages"] == 0
    assert ask("unbind", exchange="page-x", to="page", key="a.#") == {"type": "ok"}
    assert ask("delete-exchange", name="page-x") == {"type": "ok"}
    assert ask("delete-queue", name="page") == {"type": "counted", "messages": 0}


def test_every_word_about_topics_is_answered(client: RawClient) -> None:
    ask = client.ask
    assert ask("create-topic", name="page-t", partitions=2) == {"type": "ok"}
    places = ask("append", topic="page-t", partition=1, messages=[{"value": b"x"}])["places"]
    assert places == [{"partition": 1, "offset": 0}]
    ask("append", topic="page-t", partition=0, durability="written", messages=[{"value": b"w"}])
    assert ask("read", topic="page-t", wait_ms=5_000)["records"][0]["message"]["value"] == b"w"
    found = ask("read", topic="page-t", partition=1)
    assert [each["message"]["value"] for each in found["records"]] == [b"x"]
    assert {"name": "page-t", "partitions": 2} in ask("list-topics")["topics"]
    assert ask("delete-topic", name="page-t") == {"type": "ok"}


@pytest.mark.parametrize("compression", ["gzip", "brotli"])
def test_compressed_frames_go_both_ways(node: LocalNode, compression: str) -> None:
    with RawClient(node.native) as client:
        assert client.connect(compression=["zstd", compression])["compression"] == compression
        client.ask("declare-queue", name="packed")
        body = b"the same again and " * 10_000
        assert client.ask("publish", key="packed", messages=[{"value": body}])["stored"] == 1
        got = client.ask("get", queue="packed", no_ack=True)
        assert got["delivery"]["message"]["value"] == body


def test_what_a_gone_connection_held_comes_again_in_its_place(node: LocalNode) -> None:
    with RawClient(node.native) as first:
        first.connect()
        first.ask("declare-queue", name="held", preset="plain")
        first.ask("publish", key="held", messages=[{"value": b"%d" % n} for n in range(3)])
        first.ask("subscribe", subscription=1, queue="held", window=2)
        assert len(first.next_news()["deliveries"]) == 2
    with RawClient(node.native) as second:
        second.connect()
        second.ask("subscribe", subscription=1, queue="held")
        values: list[bytes] = []
        while len(values) < 3:
            found = second.next_news()["deliveries"]
            values += [each["message"]["value"] for each in found]
        assert values == [b"0", b"1", b"2"]


def test_large_batches_for_a_topic_are_stored_in_pieces_and_in_order(client: RawClient) -> None:
    client.ask("create-topic", name="large", partitions=1)
    messages = [{"value": b"%d" % n + b"x" * 200_000} for n in range(40)]
    places = client.ask("append", topic="large", messages=messages)["places"]
    assert [place.get("offset", 0) for place in places] == list(range(40))
    values: list[bytes] = []
    while len(values) < 40:
        found = client.ask("read", topic="large", offset=len(values), limit=7)
        values += [each["message"]["value"] for each in found["records"]]
        assert found["next_offset"] == len(values)
    assert values == [message["value"] for message in messages]


def test_errors_name_code_cause_object_and_remedy(client: RawClient) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("subscribe", {"subscription": 1, "queue": "no"}, "UNKNOWN_QUEUE"),
        ("publish", {"exchange": "no", "messages": [{}]}, "UNKNOWN_EXCHANGE"),
        ("publish", {"messages": [{}]}, "INVALID_ARGUMENT"),
        ("publish", {"key": "x" * 256, "messages": [{}]}, "INVALID_ARGUMENT"),
        ("credit", {"subscription": 9, "messages": 1}, "UNKNOWN_CONSUMER"),
        ("declare-queue", {"name": "q", "settings": {"mode": "best"}}, "INVALID_ARGUMENT"),
        ("declare-queue", {"name": "q", "settings": {"max_length": -1}}, "INVALID_ARGUMENT"),
        ("declare-exchange", {"name": "q", "kind": "best"}, "INVALID_ARGUMENT"),
        ("read", {"topic": "../../etc/passwd"}, "UNKNOWN_TOPIC"),
        ("create-topic", {"name": "../x"}, "INVALID_TOPIC_NAME"),
        ("append", {"topic": "__queues", "messages": [{}]}, "RESERVED_NAME"),
        ("read", {"topic": "__consumer_offsets"}, "RESERVED_NAME"),
        ("connect", {}, "ILLEGAL_LOGIN_STATE"),
        ("dance", {}, "INVALID_REQUEST"),
    ]
    for word, fields, code in cases:
        answer = client.ask(word, **fields)
        assert (answer["type"], answer["code"]) == ("error", code), (word, answer)
        assert answer["cause"]
    assert client.ask("ping") == {"type": "pong"}


def test_a_length_before_login_costs_nothing(node: LocalNode) -> None:
    before = memory_bytes(node)
    for length in (2**31 - 1, 2**32 - 1, 4_097, 0, 3):
        with RawClient(node.native) as client:
            client.send_bytes(struct.pack(">IBI", length, 0, 1) + b"x" * 100)
            assert client.is_closed()
    assert memory_bytes(node) - before < 4 * MIB


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">IBI", 6, 1, 1) + b"x",
        struct.pack(">IBI", 6, 0x80, 1) + b"x",
        struct.pack(">IBI", 6, 0, 1) + b"\xc1",
        struct.pack(">IBI", 16, 0, 1) + b"\x81\xa4type\xa4ping",
    ],
)
def test_whoever_speaks_something_else_is_sent_away(node: LocalNode, data: bytes) -> None:
    with RawClient(node.native) as client:
        client.send_bytes(data)
        assert client.is_closed()


def test_silence_before_login_ends(node: LocalNode) -> None:
    with RawClient(node.native) as client:
        began = time.monotonic()
        assert client.is_closed()
        assert time.monotonic() - began < 8


def test_a_body_that_unpacks_to_more_than_is_allowed_is_refused(node: LocalNode) -> None:
    before = memory_bytes(node)
    with RawClient(node.native) as client:
        client.connect(compression=["gzip"])
        client.send(1, {"type": "ping", "x": b"\0" * (64 * MIB)})
        assert client.is_closed()
    with RawClient(node.native) as client:
        client.connect(compression=["brotli"])
        data = struct.pack(">I", 2**32 - 1) + b"\x00" * 50
        client.send_bytes(struct.pack(">IBI", 5 + len(data), 2, 1) + data)
        assert client.is_closed()
    assert memory_bytes(node) - before < 24 * MIB


def test_counts_that_are_not_there_cost_no_memory(client: RawClient, node: LocalNode) -> None:
    before = memory_bytes(node)
    for count in (b"\xdd\xff\xff\xff\xff", b"\xdd\x00\xff\xff\xff"):
        body = b"\x82\xa4type\xa7publish\xa8messages" + count
        client.send_bytes(struct.pack(">IBI", 5 + len(body), 0, 77) + body)
        assert client.receive()[1]["code"] == "INVALID_REQUEST"
    assert memory_bytes(node) - before < 4 * MIB


def test_a_client_that_takes_nothing_is_not_sent_everything(node: LocalNode) -> None:
    with RawClient(node.native) as client:
        client.connect()
        client.ask("declare-queue", name="slow", preset="plain")
        body = b"x" * 100_000
        for _ in range(10):
            client.ask("publish", key="slow", messages=[{"value": body}] * 50)
        before = memory_bytes(node)
        client.ask("subscribe", subscription=1, queue="slow", no_ack=True)
        time.sleep(1)
        with RawClient(node.native) as other:
            other.connect()
            [queue] = other.ask("describe-queue", name="slow")["queues"]
            assert queue["ready"] > 300
        assert memory_bytes(node) - before < 64 * MIB
