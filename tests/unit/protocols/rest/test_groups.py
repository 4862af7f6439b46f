"""Groups over HTTP."""

from tests.unit.protocols.rest.counter import Rest

from mainstem.broker.api.share_groups import DescribedShareGroup, DescribedShareMember, ShareOffset


async def test_the_list_has_the_names_that_strikemq_gave_it(rest: Rest) -> None:
    rest.counter.add_group("g", "t", 0, members=2)
    [line] = (await rest.http.get("/v1/groups")).json()
    assert line == {
        "group_id": "g",
        "type": "classic",
        "state": "Stable",
        "generation_id": 3,
        "member_count": 2,
        "protocol_type": "consumer",
    }


async def test_one_group_shows_its_members_positions_and_lag(rest: Rest) -> None:
    await rest.post("t", [{"value": "v"}] * 5)
    rest.counter.add_group("g", "t", 2)
    body = (await rest.http.get("/v1/groups/g")).json()
    assert (body["protocol_type"], body["protocol_name"], body["leader_id"]) == (
        "consumer",
        "range",
        "m-0",
    )
    [member] = body["members"]
    assert {"member_id", "client_id", "session_timeout_ms", "rebalance_timeout_ms"} <= set(member)
    assert body["committed_offsets"] == {"t-0": 2}
    assert body["positions"][0]["lag"] == 3
    assert body["total_lag"] == 3


async def test_a_position_in_a_topic_that_is_gone_has_no_lag(rest: Rest) -> None:
    rest.counter.add_group("g", "gone", 2)
    body = (await rest.http.get("/v1/groups/g")).json()
    assert body["positions"][0]["lag"] is None
    assert body["total_lag"] == 0


async def test_an_unknown_group_is_a_404(rest: Rest) -> None:
    answer = await rest.http.get("/v1/groups/absent")
    assert answer.status_code == 404
    assert answer.json()["code"] == "UNKNOWN_GROUP"


async def test_a_group_name_may_hold_a_slash(rest: Rest) -> None:
    rest.counter.add_group("team/app", "t", 0)
    answer = await rest.http.get("/v1/groups/team%2Fapp")
    assert answer.json()["group_id"] == "team/app"


async def test_only_an_empty_group_is_deleted(rest: Rest) -> None:
    rest.counter.add_group("busy", "t", 0)
    rest.counter.add_group("idle", "t", 0, members=0)
    assert (await rest.http.delete("/v1/groups/busy")).status_code == 409
    assert (await rest.http.delete("/v1/groups/idle")).json() == {"deleted": "idle"}
    assert (await rest.http.get("/v1/groups/idle")).status_code == 404


async def test_a_share_group_shows_its_members_and_what_is_left_to_do(rest: Rest) -> None:
    await rest.post("t", [{"value": "v"}] * 5)
    members = (DescribedShareMember("m", None, 2, "app", "/127.0.0.1", ("t",)),)
    group = DescribedShareGroup("s", "Stable", 4, 4, "simple", members)
    offsets = [ShareOffset("t", 0, start_offset=1, lag=2), ShareOffset("t", 1)]
    rest.counter.shared["s"] = (group, offsets)

    body = (await rest.http.get("/v1/groups/s")).json()

    assert (body["type"], body["state"], body["generation_id"]) == ("share", "Stable", 4)
    [member] = body["members"]
    assert (member["member_id"], member["client_id"]) == ("m", "app")
    assert member["session_timeout_ms"] == 45_000
    [position] = body["positions"]
    assert (position["committed_offset"], position["end_offset"], position["lag"]) == (1, 5, 2)
    assert body["total_lag"] == 2
