"""Topics over HTTP."""

import pytest
from tests.unit.protocols.rest.counter import Rest

from mainstem.broker.api.configs import ConfigChange


async def test_the_list_has_the_names_that_strikemq_gave_it(rest: Rest) -> None:
    await rest.topic("b", 2)
    await rest.topic("a")
    await rest.topic("__consumer_offsets", internal=True)
    await rest.post("b", [{"value": "v", "partition": p} for p in (0, 1, 1)])
    listed = (await rest.http.get("/v1/topics")).json()
    names = ("name", "partitions", "start_offset", "end_offset")
    assert [tuple(line[name] for name in names) for line in listed] == [
        ("a", 1, 0, 0),
        ("b", 2, 0, 3),
    ]
    everything = (await rest.http.get("/v1/topics?internal=true")).json()
    assert len(everything) == 3


async def test_one_topic_shows_its_partitions(rest: Rest) -> None:
    await rest.topic("t", 2)
    await rest.post("t", {"value": "v", "partition": 1})
    body = (await rest.http.get("/v1/topics/t")).json()
    assert body["name"] == "t"
    names = ("partition", "start_offset", "end_offset")
    assert [tuple(part[name] for name in names) for part in body["partitions"]] == [
        (0, 0, 0),
        (1, 0, 1),
    ]
    assert body["partitions"][1]["size_bytes"] > 0


async def test_put_creates_a_topic_and_then_brings_it_to_what_is_asked(rest: Rest) -> None:
    made = await rest.http.put(
        "/v1/topics/t", json={"partitions": 2, "configs": {"retention.ms": 1000}}
    )
    assert made.status_code == 201
    assert len(made.json()["partitions"]) == 2
    assert made.json()["configs"] == {"retention.ms": "1000"}
    grown = await rest.http.put(
        "/v1/topics/t", json={"partitions": 3, "configs": {"retention.ms": None}}
    )
    assert grown.status_code == 200
    assert len(grown.json()["partitions"]) == 3
    assert rest.counter.altered == [("t", [ConfigChange("retention.ms", "delete")])]
    same = await rest.http.put("/v1/topics/t", json={"partitions": 3, "replication_factor": 1})
    assert same.status_code == 200


async def test_put_without_a_body_makes_a_topic_with_defaults(rest: Rest) -> None:
    assert (await rest.http.put("/v1/topics/t")).status_code == 201
    assert (await rest.http.put("/v1/topics/t")).status_code == 200


async def test_what_cannot_be_done_to_a_topic_is_a_conflict_and_changes_nothing(
    rest: Rest,
) -> None:
    await rest.topic("t", 3)
    for body in (
        {"partitions": 2},
        {"replication_factor": 3},
        {"partitions": 2, "configs": {"retention.ms": "1"}},
    ):
        answer = await rest.http.put("/v1/topics/t", json=body)
        assert answer.status_code == 409, body
    wrong = await rest.http.put("/v1/topics/t", json={"partitions": 4, "configs": {"no.such": "1"}})
    assert wrong.status_code == 400
    many = await rest.http.put(
        "/v1/topics/t", json={"partitions": 101, "configs": {"retention.ms": "1"}}
    )
    assert many.status_code == 400
    assert len((await rest.http.get("/v1/topics/t")).json()["partitions"]) == 3
    assert rest.counter.altered == []


async def test_post_creates_and_never_changes(rest: Rest) -> None:
    first = await rest.http.post("/v1/topics", json={"name": "t", "partitions": 2})
    assert first.status_code == 201
    second = await rest.http.post("/v1/topics", json={"name": "t", "partitions": 2})
    assert second.status_code == 409
    assert second.json()["code"] == "TOPIC_EXISTS"


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"partitions":0}',
        b'{"partitions":-1}',
        b'{"partitions":1.5}',
        b'{"partitions":"1"}',
        b'{"partitions":99999999999999999999}',
        b'{"replication_factor":0}',
        b'{"configs":["a"]}',
        b'{"configs":{"retention.ms":[1]}}',
        b'{"partition":1}',
    ],
)
async def test_a_topic_described_wrongly_is_a_400(rest: Rest, body: bytes) -> None:
    answer = await rest.http.put("/v1/topics/t", content=body)
    assert answer.status_code == 400
    assert rest.counter.by_name("t") is None


@pytest.mark.parametrize(
    "name",
    ["..", ".", "a b", "a%2Fb", "%2e%2e%2fetc", "ü", "x" * 250, "a\x00b".replace("\x00", "%00")],
)
async def test_an_illegal_name_is_refused_everywhere(rest: Rest, name: str) -> None:
    name = name.replace(".", "%2E")  # or the client would tidy the path itself
    statuses = [
        (await rest.http.request(method, f"/v1/topics/{name}{tail}", content=content)).status_code
        for method, tail, content in (
            ("GET", "", None),
            ("PUT", "", b"{}"),
            ("DELETE", "", None),
            ("GET", "/messages", None),
            ("POST", "/messages", b'{"value":"v"}'),
        )
    ]
    assert set(statuses) <= {400, 404}
    assert list(rest.counter.all()) == []


async def test_delete_says_what_is_gone(rest: Rest) -> None:
    await rest.topic("t", 3)
    answer = await rest.http.delete("/v1/topics/t")
    assert answer.json() == {"deleted": "t", "partitions_removed": 3}
    again = await rest.http.delete("/v1/topics/t")
    assert again.status_code == 404
    assert again.json()["subject"] == "t"


async def test_topics_of_the_node_itself_are_neither_altered_nor_deleted(rest: Rest) -> None:
    await rest.topic("__consumer_offsets", internal=True)
    assert (await rest.http.delete("/v1/topics/__consumer_offsets")).status_code == 403
    altered = await rest.http.put("/v1/topics/__consumer_offsets", json={"partitions": 2})
    assert altered.status_code == 403
