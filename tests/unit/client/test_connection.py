"""Connections against a peer that follows a script."""

import asyncio
import struct
from typing import Any

import pytest
from tests.unit.client.peer import SILENCE, HangUp, ScriptedPeer

from mainstem.client.connection import Connection, ConnectionSettings, LengthPrefixedFrameReader
from mainstem.client.network.link import BACKOFF_MS_MAX, Link, backoff_ms
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, Unavailable
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from mainstem.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from mainstem.wire.kafka.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

API_VERSIONS = codec.KEYS["ApiVersions"]


async def dial(peer: ScriptedPeer, **settings: Any) -> Connection:
    return await Connection.open("127.0.0.1", peer.port, ConnectionSettings(**settings))


def answer_heartbeat(request: Any, version: int) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=request.generation_id)


async def test_the_newest_common_version_is_spoken() -> None:
    async with ScriptedPeer({"Heartbeat": answer_heartbeat}) as peer:
        peer.offered[codec.KEYS["Heartbeat"]] = (0, 2)
        connection = await dial(peer)
        await connection.call(HeartbeatRequest())
        connection.close()
        assert [version for name, version, _ in peer.requests if name == "Heartbeat"] == [2]


async def test_a_broker_that_knows_only_old_api_versions_is_asked_again() -> None:
    def refuse_new(request: Any, version: int) -> Any:
        if version > 1:
            # Version 0 of the body whatever was asked, as the protocol demands.
            chunks: list[Any] = codec.encode_response(
                API_VERSIONS,
                0,
                ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(API_VERSIONS, 0, 1)]),
            )
            body = b"".join(chunks)
            return struct.pack(">ii", 4 + len(body), 0) + body
        return ApiVersionsResponse(api_keys=[ApiVersion(12, 0, 4)])

    async with ScriptedPeer({"ApiVersions": refuse_new}) as peer:
        connection = await dial(peer)
        connection.close()
        versions, asked = connection.versions, [version for _, version, _ in peer.requests]
    assert versions == {12: (0, 4)}
    assert asked == [codec.VERSIONS[API_VERSIONS][1], 1]


async def test_an_api_without_a_common_version_is_refused_before_it_is_sent() -> None:
    async with ScriptedPeer() as peer:
        del peer.offered[codec.KEYS["Heartbeat"]]
        connection = await dial(peer)
        with pytest.raises(InvalidRequest) as caught:
            await connection.call(HeartbeatRequest())
        connection.close()
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


async def test_pipelined_calls_get_their_own_answers() -> None:
    async with ScriptedPeer({"Heartbeat": answer_heartbeat}) as peer:
        connection = await dial(peer)
        calls = (connection.call(HeartbeatRequest(generation_id=n)) for n in range(200))
        answers = await asyncio.gather(*calls)
        connection.close()
        assert [answer.throttle_time_ms for answer in answers] == list(range(200))


async def test_no_more_calls_are_in_flight_than_allowed() -> None:
    async with ScriptedPeer({"Heartbeat": lambda request, version: SILENCE}) as peer:
        connection = await dial(peer, in_flight_max=3)
        calls = [
            asyncio.ensure_future(connection.call(HeartbeatRequest(), timeout_ms=200))
            for _ in range(10)
        ]
        await asyncio.sleep(0.1)
        arrived = len([name for name, _, _ in peer.requests if name == "Heartbeat"])
        await asyncio.gather(*calls, return_exceptions=True)
        assert arrived == 3


async def test_a_call_that_times_out_ends_the_connection() -> None:
    async with ScriptedPeer({"Heartbeat": lambda request, version: SILENCE}) as peer:
        connection = await dial(peer)
        with pytest.raises(Unavailable) as caught:
            await connection.call(HeartbeatRequest(), timeout_ms=50)
        error, is_open = caught.value, connection.is_open
    assert error.code is ErrorCode.TIMED_OUT
    assert not is_open


async def test_a_cancelled_call_leaves_the_connection_usable() -> None:
    release: list[bool] = []

    def slow_first(request: Any, version: int) -> Any:
        release.append(True)
        return HeartbeatResponse(throttle_time_ms=request.generation_id)

    async with ScriptedPeer({"Heartbeat": slow_first}) as peer:
        connection = await dial(peer)
        abandoned = asyncio.ensure_future(connection.call(HeartbeatRequest(generation_id=1)))
        await asyncio.sleep(0)
        abandoned.cancel()
        await asyncio.gather(abandoned, return_exceptions=True)
        answer = await connection.call(HeartbeatRequest(generation_id=2))
        connection.close()
        assert int(answer.throttle_time_ms) == 2


async def test_a_lost_connection_fails_every_call_as_retriable() -> None:
    def hang_up(request: Any, version: int) -> Any:
        raise HangUp

    async with ScriptedPeer({"Heartbeat": hang_up}) as peer:
        connection = await dial(peer)
        calls = [connection.call(HeartbeatRequest()) for _ in range(3)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(error, Unavailable) and error.retriable for error in errors)
    assert len({id(error) for error in errors}) == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\0\0\0\1\0",
        struct.pack(">ii", 4, 77),
        struct.pack(">ii", 9, 1) + b"\0abcd",
    ],
    ids=["huge", "negative", "tiny", "not asked for", "garbage"],
)
async def test_a_malformed_answer_ends_the_connection(answer: bytes) -> None:
    async with ScriptedPeer({"Heartbeat": lambda request, version: answer}) as peer:
        connection = await dial(peer)
        with pytest.raises(Corrupt) as caught:
            await connection.call(HeartbeatRequest())
        assert not connection.is_open
        assert caught.value.code is ErrorCode.CORRUPT


async def test_an_answer_larger_than_the_receive_buffer_arrives_whole() -> None:
    groups = [ListedGroup(group_id=f"group {number}" * 20) for number in range(5_000)]

    def answer(request: Any, version: int) -> Any:
        return ListGroupsResponse(groups=groups)

    async with ScriptedPeer({"ListGroups": answer, "Heartbeat": answer_heartbeat}) as peer:
        connection = await dial(peer)
        calls = [connection.call(ListGroupsRequest()), connection.call(HeartbeatRequest())]
        large, small = await asyncio.gather(*calls)
        again = await connection.call(ListGroupsRequest())
        connection.close()
        assert (large.groups, small.error_code, again.groups) == (groups, 0, groups)


async def test_nobody_at_the_address_is_an_error_with_the_address() -> None:
    async with ScriptedPeer() as peer:
        port = peer.port
    with pytest.raises(Unavailable) as caught:
        await Connection.open("127.0.0.1", port, ConnectionSettings())
    assert caught.value.subject == f"127.0.0.1:{port}"
    assert caught.value.retriable


async def test_a_peer_that_never_answers_the_first_question_is_given_up() -> None:
    async with ScriptedPeer({"ApiVersions": lambda request, version: SILENCE}) as peer:
        with pytest.raises(Unavailable) as caught:
            await dial(peer, connect_timeout_ms=50)
        assert "50 ms" in caught.value.cause


async def test_a_value_that_the_version_cannot_carry_is_refused_and_harms_nothing() -> None:
    async with ScriptedPeer({"Heartbeat": answer_heartbeat}) as peer:
        connection = await dial(peer)
        with pytest.raises(InvalidRequest):
            await connection.call(HeartbeatRequest(generation_id=1 << 40))
        answer = await connection.call(HeartbeatRequest(generation_id=5))
        connection.close()
        assert int(answer.throttle_time_ms) == 5


@pytest.mark.parametrize("piece", [1, 3, 7, 1000])
def test_frames_are_found_however_the_bytes_arrive(piece: int) -> None:
    frames = [b"x" * size for size in (4, 5, 100, 70_000, 4, 65_532, 65_533, 9)]
    data = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    reader = LengthPrefixedFrameReader()
    found: list[bytes] = []
    at = 0
    while at < len(data):
        free_space = reader.free_space()
        count = min(piece, len(free_space), len(data) - at)
        free_space[:count] = data[at : at + count]
        found += [bytes(frame) for frame in reader.received(count)]
        at += count
    assert found == frames


def test_the_pause_between_dials_doubles_up_to_half_a_minute() -> None:
    pauses = [backoff_ms(failures, 0.5) for failures in range(14)]
    assert pauses[:5] == [0, 100, 200, 400, 800]
    assert pauses[-1] == BACKOFF_MS_MAX
    assert backoff_ms(1, 0.0) == pytest.approx(80)
    assert backoff_ms(1, 1.0) == pytest.approx(120)


async def test_a_link_dials_once_for_all_who_wait_and_again_after_a_loss() -> None:
    async with ScriptedPeer({"Heartbeat": answer_heartbeat}) as peer:
        link = Link("127.0.0.1", peer.port, ConnectionSettings())
        await asyncio.gather(*(link.call(HeartbeatRequest()) for _ in range(10)))
        first = peer.connections
        peer.hang_up()
        await asyncio.sleep(0.05)
        await link.call(HeartbeatRequest())
        await link.close()
        assert (first, peer.connections) == (1, 2)


async def test_nobody_overtakes_those_who_wait_for_the_dial() -> None:
    async with ScriptedPeer() as peer:
        link = Link("127.0.0.1", peer.port, ConnectionSettings())
        served: list[int] = []

        async def ask(number: int) -> None:
            await link.connection()
            served.append(number)

        async with asyncio.TaskGroup() as group:
            group.create_task(ask(0))
            # The loop may turn several times between the end of the dial and the first waiter.
            while not link.is_connected:  # noqa: ASYNC110 - the very next turn matters
                await asyncio.sleep(0)
            group.create_task(ask(1))
            await ask(2)
        await link.close()
        assert served == [0, 2, 1]


async def test_calls_that_wait_for_room_leave_in_their_order() -> None:
    async with ScriptedPeer({"Heartbeat": answer_heartbeat}) as peer:
        connection = await dial(peer)
        connection.pause_writing()
        calls = [connection.call(HeartbeatRequest(generation_id=n)) for n in range(4)]
        tasks = [asyncio.ensure_future(call) for call in calls[:3]]
        await asyncio.sleep(0)
        connection.resume_writing()
        await calls[3]
        await asyncio.gather(*tasks)
        connection.close()
        beats = [request for name, _, request in peer.requests if name == "Heartbeat"]
        assert [beat.generation_id for beat in beats] == [0, 1, 2, 3]


async def test_a_link_rests_after_a_failed_dial() -> None:
    async with ScriptedPeer() as peer:
        port = peer.port
    link = Link("127.0.0.1", port, ConnectionSettings())
    loop = asyncio.get_running_loop()
    with pytest.raises(Unavailable):
        await link.connection()
    is_resting, before = link.is_resting, loop.time()
    with pytest.raises(Unavailable):
        await link.connection()
    pause_s = loop.time() - before
    assert is_resting
    assert pause_s > 0.07
