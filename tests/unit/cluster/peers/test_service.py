"""Nodes that ask each other over real sockets on loopback."""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence

import pytest

from mainstem.cluster.peers.frames import FrameKind, PeerService, header
from mainstem.cluster.peers.service import UNAUTHENTICATED_MAX, Address, Peers, PeerSettings
from mainstem.cluster.peers.versions import HIGHEST_VERSION, OWN_VERSIONS, Versions
from mainstem.cluster.peers.watcher_service import CHECK_PAUSES_S
from mainstem.model.errors import Corrupt, ErrorCode, Fenced, InvalidRequest, Unavailable
from mainstem.model.ids import NodeId
from mainstem.model.limits import PEER_FRAME_BYTES_MAX

SECRET = b"0123456789abcdef"
ONE, TWO = NodeId(1), NodeId(2)


class PeerCluster:
    """Nodes that know where the others are."""

    def __init__(self) -> None:
        self.addresses: dict[NodeId, Address] = {}
        self.peers: list[Peers] = []

    async def add(
        self,
        node: NodeId,
        *,
        secret: bytes = SECRET,
        port: int = 0,
        versions: Versions = OWN_VERSIONS,
    ) -> Peers:
        settings = PeerSettings(
            cluster="c", node=node, broker_epoch=1, secrets=(secret,), versions=versions
        )
        peers = Peers(settings, self.addresses.get, os.urandom)
        self.addresses[node] = await peers.listen("127.0.0.1", port)
        self.peers.append(peers)
        return peers

    async def close(self) -> None:
        for peers in self.peers:
            await peers.close()
        await asyncio.sleep(0)


async def echo(node: NodeId, body: memoryview) -> Sequence[bytes]:
    return [b"%d " % node, bytes(body)]


async def test_questions_get_their_own_answers_and_keep_their_order() -> None:
    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)
    seen: list[bytes] = []

    async def note_and_echo(node: NodeId, body: memoryview) -> Sequence[bytes]:
        seen.append(bytes(body))
        await asyncio.sleep(0 if len(seen) % 2 else 0.001)
        return await echo(node, body)

    second.serve(PeerService.RANGES, note_and_echo)
    asked = [
        first.ask(TWO, PeerService.RANGES, [b"%d" % n, b"x" * (n * 997)], timeout_s=20)
        for n in range(100)
    ]
    answers = [bytes(answer) for answer in await asyncio.gather(*asked)]
    await cluster.close()
    expected = [b"%d" % n + b"x" * (n * 997) for n in range(100)]
    assert seen == expected
    assert answers == [b"1 " + body for body in expected]


async def test_nodes_of_two_releases_use_the_highest_version_that_both_speak() -> None:
    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)
    third = await cluster.add(NodeId(3), versions=Versions(1, 1))
    for peers in cluster.peers:
        peers.serve(PeerService.CATALOGUE, echo)
    found = [first.version_of(TWO)]
    await first.ask(TWO, PeerService.CATALOGUE, [], timeout_s=20)
    await third.ask(ONE, PeerService.CATALOGUE, [], timeout_s=20)
    found += [first.version_of(TWO), second.version_of(ONE)]
    found += [first.version_of(NodeId(3)), third.version_of(ONE)]
    await cluster.close()
    assert found == [None, HIGHEST_VERSION, HIGHEST_VERSION, 1, 1]


async def test_once_a_version_is_required_older_nodes_are_cut_off_and_refused() -> None:
    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)
    old = await cluster.add(NodeId(3), versions=Versions(1, 1))
    for peers in cluster.peers:
        peers.serve(PeerService.CATALOGUE, echo)
    await first.ask(TWO, PeerService.CATALOGUE, [], timeout_s=20)
    await first.ask(NodeId(3), PeerService.CATALOGUE, [], timeout_s=20)
    await old.ask(ONE, PeerService.CATALOGUE, [], timeout_s=20)
    first.require(2)
    assert (first.version_of(TWO), first.version_of(NodeId(3))) == (2, None)
    with pytest.raises(Corrupt, match=r"node 3 speaks version 1 .* this node speaks version 2"):
        await first.ask(NodeId(3), PeerService.CATALOGUE, [], timeout_s=20)
    await _until(lambda: old.version_of(ONE) is None)
    with pytest.raises(Corrupt, match=r"node 1 speaks version 2 .* this node speaks version 1"):
        await old.ask(ONE, PeerService.CATALOGUE, [], timeout_s=20)
    assert bytes(await second.ask(ONE, PeerService.CATALOGUE, [b"x"], timeout_s=20)) == b"2 x"
    await cluster.close()


async def test_a_refusal_is_raised_where_it_was_asked_for() -> None:
    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)

    async def refuse(node: NodeId, body: memoryview) -> Sequence[bytes]:
        raise Fenced(ErrorCode.FENCED_PRODUCER, "somebody newer", subject="s")

    second.serve(PeerService.RANGES, refuse)
    with pytest.raises(Fenced, match="somebody newer"):
        await first.ask(TWO, PeerService.RANGES, [], timeout_s=20)
    with pytest.raises(Unavailable, match="is not served here yet"):  # a node that has just begun
        await first.ask(TWO, PeerService.CATALOGUE, [], timeout_s=20)
    await cluster.close()


async def test_a_broken_service_ends_the_connection_and_the_next_question_finds_a_new_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)

    async def broken(node: NodeId, body: memoryview) -> Sequence[bytes]:
        raise ZeroDivisionError

    second.serve(PeerService.RANGES, broken)
    second.serve(PeerService.CATALOGUE, echo)
    with pytest.raises(Unavailable, match="ended"):
        await first.ask(TWO, PeerService.RANGES, [], timeout_s=20)
    answer = bytes(await first.ask(TWO, PeerService.CATALOGUE, [b"still"], timeout_s=20))
    await cluster.close()
    assert answer == b"1 still"
    assert "ZeroDivisionError" in caplog.text


async def test_notes_arrive_in_order_once_the_way_is_open() -> None:
    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)
    heard: list[bytes] = []
    second.on_note(
        PeerService.RAFT, lambda node, body: heard.append(b"%d:%b" % (node, bytes(body)))
    )
    second.serve(PeerService.CATALOGUE, echo)
    assert not first.note(TWO, PeerService.RAFT, [b"too early"])
    await first.ask(TWO, PeerService.CATALOGUE, [], timeout_s=20)
    for number in range(5):
        assert first.note(TWO, PeerService.RAFT, [b"%d" % number])
    await first.ask(TWO, PeerService.CATALOGUE, [], timeout_s=20)
    await cluster.close()
    assert heard == [b"1:%d" % number for number in range(5)]


async def test_what_is_too_large_is_refused_by_its_sender_and_the_connection_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Leases and everything else go on over the same connection."""
    large = memoryview(bytes(PEER_FRAME_BYTES_MAX + 1))

    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)
    heard: list[int] = []
    second.on_note(PeerService.RANGES, lambda node, body: heard.append(len(body)))
    second.serve(PeerService.LEASES, echo)

    async def answer_too_much(node: NodeId, body: memoryview) -> Sequence[memoryview]:
        return [large]

    second.serve(PeerService.GROUPS, answer_too_much)
    await first.ask(TWO, PeerService.LEASES, [], timeout_s=20)
    connection = first._line(TWO).current
    assert not first.note(TWO, PeerService.RANGES, [b"head", large])
    with pytest.raises(InvalidRequest, match="the limit of 67108864") as found:
        await first.ask(TWO, PeerService.REQUESTS, [large], timeout_s=20)
    assert found.value.code is ErrorCode.RECORD_TOO_LARGE
    with pytest.raises(InvalidRequest, match="the limit of 67108864"):
        await first.ask(TWO, PeerService.GROUPS, [], timeout_s=20)
    assert first.note(TWO, PeerService.RANGES, [large[:-1]])  # the largest that is allowed
    assert bytes(await first.ask(TWO, PeerService.LEASES, [b"x"], timeout_s=20)) == b"1 x"
    assert heard == [PEER_FRAME_BYTES_MAX]
    assert first._line(TWO).current is connection
    await cluster.close()
    assert "a note is not sent" in caplog.text


async def test_a_node_that_comes_back_is_found_again() -> None:
    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)
    second.serve(PeerService.CATALOGUE, echo)
    answers = [bytes(await first.ask(TWO, PeerService.CATALOGUE, [b"a"], timeout_s=20))]
    await second.close()
    await asyncio.sleep(0.05)
    with pytest.raises(Unavailable):
        await first.ask(TWO, PeerService.CATALOGUE, [b"b"], timeout_s=20)
    third = await cluster.add(TWO)
    third.serve(PeerService.CATALOGUE, echo)
    answers.append(bytes(await first.ask(TWO, PeerService.CATALOGUE, [b"c"], timeout_s=20)))
    await cluster.close()
    assert answers == [b"1 a", b"1 c"]


async def test_a_node_that_dials_is_dialled_without_a_pause() -> None:
    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)
    port = cluster.addresses[TWO][1]
    await second.close()
    await asyncio.sleep(0.05)
    for _ in range(6):  # the pause has grown to more than a second
        with pytest.raises(Unavailable):
            await first.ask(TWO, PeerService.CATALOGUE, [], timeout_s=20)
    first.note(TWO, PeerService.RAFT, [b"dial"])
    third = await cluster.add(TWO, port=port)
    third.serve(PeerService.CATALOGUE, echo)
    first.serve(PeerService.CATALOGUE, echo)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await third.ask(ONE, PeerService.CATALOGUE, [], timeout_s=20)
    await first.ask(TWO, PeerService.CATALOGUE, [], timeout_s=20)
    took_s = loop.time() - began
    await cluster.close()
    assert took_s < 1


async def test_a_machine_says_whether_a_process_takes_connections() -> None:
    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)
    found = [await first.is_refused(TWO, timeout_s=5)]
    await second.close()
    found.append(await first.is_refused(TWO, timeout_s=5))
    found.append(await first.is_refused(NodeId(9), timeout_s=5))
    await cluster.close()
    assert found == [False, True, False]


async def test_who_waits_is_told_when_the_connection_ends_or_the_time_is_over() -> None:
    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)
    began = asyncio.Event()

    async def hang(node: NodeId, body: memoryview) -> Sequence[bytes]:
        began.set()
        await asyncio.Event().wait()
        return []

    second.serve(PeerService.RANGES, hang)
    with pytest.raises(Unavailable, match=r"did not answer in 0\.1 s"):
        await first.ask(TWO, PeerService.RANGES, [], timeout_s=0.1)
    began.clear()
    asking = asyncio.ensure_future(first.ask(TWO, PeerService.RANGES, [], timeout_s=20))
    await began.wait()
    await second.close()
    with pytest.raises(Unavailable, match="ended"):
        await asking
    await cluster.close()


async def test_strangers_are_not_served_and_cost_little() -> None:
    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)
    second.serve(PeerService.CATALOGUE, echo)
    stranger = await cluster.add(NodeId(66), secret=b"fedcba9876543210")
    with pytest.raises(Corrupt, match="secret"):
        await stranger.ask(TWO, PeerService.CATALOGUE, [], timeout_s=20)
    question = header(FrameKind.QUESTION, PeerService.CATALOGUE, 1, 0)
    huge = header(FrameKind.HELLO, 0, 0, 1 << 20)
    for said in (question, huge, b"GET / HTTP/1.1\r\n\r\n"):
        reader, writer = await asyncio.open_connection(*cluster.addresses[TWO])
        writer.write(said)
        assert await _rest(reader) == b""
        writer.close()
    assert bytes(await first.ask(TWO, PeerService.CATALOGUE, [b"x"], timeout_s=20)) == b"1 x"
    await cluster.close()


async def test_no_more_strangers_are_held_than_allowed() -> None:
    cluster = PeerCluster()
    await cluster.add(TWO)
    many = range(UNAUTHENTICATED_MAX + 20)
    held = [await asyncio.open_connection(*cluster.addresses[TWO]) for _ in many]
    await asyncio.sleep(0.2)
    ended = sum(reader.at_eof() for reader, _ in held)
    for _, writer in held:
        writer.close()
    await cluster.close()
    assert ended == 20


async def test_strangers_who_say_nothing_do_not_keep_a_node_out() -> None:
    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)
    second.serve(PeerService.CATALOGUE, echo)
    many = range(2 * UNAUTHENTICATED_MAX)
    held = [await asyncio.open_connection(*cluster.addresses[TWO]) for _ in many]
    assert bytes(await first.ask(TWO, PeerService.CATALOGUE, [b"x"], timeout_s=20)) == b"1 x"
    for _, writer in held:
        writer.close()
    await cluster.close()


async def test_another_node_at_the_address_is_not_taken_for_the_right_one() -> None:
    cluster = PeerCluster()
    first = await cluster.add(ONE)
    await cluster.add(TWO)
    cluster.addresses[NodeId(3)] = cluster.addresses[TWO]
    with pytest.raises(Corrupt, match="node 2 answered at the address of node 3"):
        await first.ask(NodeId(3), PeerService.CATALOGUE, [], timeout_s=20)
    with pytest.raises(Unavailable, match="the address of node 9 is not known"):
        await first.ask(NodeId(9), PeerService.CATALOGUE, [], timeout_s=20)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        cluster.addresses[NodeId(4)] = free.getsockname()
    with pytest.raises(Unavailable, match="node 4 at"):
        await first.ask(NodeId(4), PeerService.CATALOGUE, [], timeout_s=20)
    await cluster.close()


@pytest.mark.parametrize("dialler", [ONE, TWO])
async def test_a_node_that_hung_up_and_refuses_connections_is_told_to_be_gone(
    dialler: NodeId,
) -> None:
    cluster = PeerCluster()
    nodes = {ONE: await cluster.add(ONE), TWO: await cluster.add(TWO)}
    gone: list[NodeId] = []
    told = asyncio.Event()
    nodes[ONE].watcher.on_gone += [gone.append, lambda _: told.set()]
    for peers in nodes.values():
        peers.serve(PeerService.RANGES, echo)
    asked = TWO if dialler == ONE else ONE
    await nodes[dialler].ask(asked, PeerService.RANGES, [], timeout_s=20)
    await nodes[TWO].close()
    async with asyncio.timeout(5):
        await told.wait()
    assert nodes[ONE].watcher.missing() == [TWO]
    await asyncio.sleep(0.1)
    await cluster.close()
    assert gone == [TWO]


async def test_a_node_that_ends_one_connection_but_still_listens_is_not_gone() -> None:
    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)
    gone: list[NodeId] = []
    first.watcher.on_gone.append(gone.append)
    first.serve(PeerService.RANGES, echo)
    await second.ask_at(cluster.addresses[ONE], PeerService.RANGES, [], timeout_s=20)
    await asyncio.sleep(sum(CHECK_PAUSES_S) + 0.1)
    await cluster.close()
    assert gone == []


async def test_a_node_that_can_still_be_heard_is_not_gone_though_its_address_refuses() -> None:
    cluster = PeerCluster()
    first, second = await cluster.add(ONE), await cluster.add(TWO)
    gone: list[NodeId] = []
    first.watcher.on_gone.append(gone.append)
    first.serve(PeerService.RANGES, echo)
    await second.ask(ONE, PeerService.RANGES, [], timeout_s=20)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        cluster.addresses[TWO] = free.getsockname()
    await second.ask_at(cluster.addresses[ONE], PeerService.RANGES, [], timeout_s=20)
    await asyncio.sleep(sum(CHECK_PAUSES_S) + 0.1)
    heard = await second.ask(ONE, PeerService.RANGES, [], timeout_s=20)
    assert bytes(heard) == b"2 "
    await cluster.close()
    assert gone == []


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 (connections have nothing to wait for)
            await asyncio.sleep(0.01)


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
