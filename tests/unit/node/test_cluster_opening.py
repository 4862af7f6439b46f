"""Nodes that found and join a cluster in one process, on real sockets and files."""

import asyncio
import contextlib
import itertools
import os
from pathlib import Path

import msgspec
import pytest
from tests.unit.cluster.peers.relay import Relay, Way

from mainstem.cluster.peers.frames import PeerService
from mainstem.cluster.peers.service import Peers, PeerSettings
from mainstem.cluster.peers.versions import HIGHEST_VERSION, Versions
from mainstem.model.errors import InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import NodeId, TopicId
from mainstem.model.metadata import Node
from mainstem.node.clock import SystemClock
from mainstem.node.clustering.joining import NodeJoinRequest, peer_address
from mainstem.node.clustering.membership import ClusterNode, is_clustered
from mainstem.node.config.loader import load
from mainstem.node.config.settings import Config
from mainstem.placement.changes.commands import CreateTopic
from mainstem.placement.startup_service import Placement, StartupOptions, open_placement

SECRET = "a secret of sixteen bytes or more\n"


def config(folder: Path, number: int, join: str = "") -> Config:
    data = folder / f"node-{number}"
    data.mkdir(exist_ok=True)
    flags: dict[str, object] = {
        "node.id": number,
        "node.data_dir": str(data),
        "cluster.peer_port": 0,
        "cluster.machine": f"machine-{number}",
        "cluster.preset": "fast",
        "cluster.join": join or None,
    }
    return load(flags=flags).config


def start_of(settings: Config) -> StartupOptions:
    return StartupOptions(
        data=Path(settings.node.data_dir),
        node=Node(NodeId(settings.node.id), "127.0.0.1", 9092),
        cluster_id=None,
        directory="d" * 32,
        scan=lambda: (),
    )


def fatal(error: BaseException) -> None:
    raise AssertionError(f"fatal: {error}")


def member(settings: Config, secret: str | None = SECRET) -> ClusterNode:
    if secret is not None:
        (Path(settings.node.data_dir) / "cluster.secret").write_text(secret)
    return ClusterNode(start_of(settings), settings, SystemClock(), fatal)


async def leave(node: ClusterNode, placement: Placement) -> None:
    await placement.close()
    await node.close()


def topic(number: int) -> CreateTopic:
    return CreateTopic(TopicId(number.to_bytes(16)), f"t{number}", 1, 1)


async def test_a_node_joins_and_both_have_one_catalogue(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        first = member(config(tmp_path, 1))
        founded = await first.open()
        second = member(config(tmp_path, 2, join="{}:{}".format(*first.address)))
        joined = await second.open()
        assert joined.identity.cluster_id == founded.identity.cluster_id
        created = await joined.service.submit(topic(1))
        assert founded.catalogue.topic("t1") == created == joined.catalogue.topic("t1")
        assert {known.node.id for known in founded.catalogue.nodes()} == {1, 2}
        await leave(second, joined)
        await leave(first, founded)


async def test_a_node_that_was_alone_founds_with_the_topics_it_has(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        settings = config(tmp_path, 1)
        alone = await open_placement(start_of(settings), SystemClock(), fatal)
        await alone.service.submit(topic(1))
        await alone.close()
        first = member(settings)
        founded = await first.open()
        assert founded.catalogue.topic("t1") is not None
        assert founded.identity == alone.identity
        assert founded.incarnation == alone.incarnation + 1
        await founded.service.submit(topic(2))
        await leave(first, founded)
        again = member(settings)
        reopened = await again.open()
        assert reopened.catalogue.topic("t2") is not None
        await leave(again, reopened)


async def test_a_member_stays_one_without_being_told_again(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        first = member(config(tmp_path, 1))
        founded = await first.open()
        second = member(config(tmp_path, 2, join="{}:{}".format(*first.address)))
        joined = await second.open()
        await leave(second, joined)
        again = member(config(tmp_path, 2))
        rejoined = await again.open()
        assert rejoined.incarnation == joined.incarnation + 1
        await leave(again, rejoined)
        await leave(first, founded)


async def test_an_empty_folder_does_not_take_a_number_that_is_taken(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        first = member(config(tmp_path, 1))
        founded = await first.open()
        (tmp_path / "elsewhere").mkdir()
        stranger = member(config(tmp_path / "elsewhere", 1, join="{}:{}".format(*first.address)))
        with pytest.raises(InvalidRequest, match="part of the cluster already"):
            await stranger.open()
        await stranger.peers.close()
        await leave(first, founded)


async def test_a_node_with_another_secret_is_not_let_in(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        first = member(config(tmp_path, 1))
        founded = await first.open()
        join = "{}:{}".format(*first.address)
        stranger = member(config(tmp_path, 2, join=join), "another secret, just as long\n")
        with pytest.raises(MainstemError):
            await stranger.open()
        await stranger.peers.close()
        await leave(first, founded)


async def test_only_the_first_node_makes_a_secret(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        first = member(config(tmp_path, 1), secret=None)
        made = tmp_path / "node-1" / "cluster.secret"
        assert len(made.read_bytes()) > 40
        assert made.stat().st_mode & 0o077 == 0
        await first.peers.close()
        with pytest.raises(InvalidRequest, match="needs the cluster's secret"):
            member(config(tmp_path, 2, join="127.0.0.1:1"), secret=None)


def test_a_node_is_alone_unless_somebody_asked_for_company(tmp_path: Path) -> None:
    alone = load(flags={"node.data_dir": str(tmp_path)}).config
    assert not is_clustered(alone)
    assert is_clustered(config(tmp_path, 1))
    (tmp_path / "raft").mkdir()
    assert is_clustered(alone)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:9094", ("10.0.0.1", 9094)),
        ("10.0.0.1", ("10.0.0.1", 9094)),
        ("[::1]:95", ("::1", 95)),
        ("[::1]", ("::1", 9094)),
    ],
)
def test_an_address_may_leave_the_port_out(text: str, address: tuple[str, int]) -> None:
    assert peer_address(text, 9094) == address


@pytest.mark.parametrize("text", ["host:", "host:0", ":1", "host:port", "host:70000"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not host:port"):
        peer_address(text, 9094)


async def test_a_cluster_refuses_nodes_that_are_too_old_for_its_level(tmp_path: Path) -> None:
    """Also after a restart, when only the catalogue's files know of the level."""

    async def refuses_old_nodes(node: ClusterNode) -> None:
        for versions in (Versions(1, HIGHEST_VERSION), Versions(1, 1)):
            identity = PeerSettings(
                cluster="",
                node=NodeId(9),
                broker_epoch=1,
                secrets=(SECRET.strip().encode(),),
                versions=versions,
            )
            caller = Peers(identity, lambda _: None, os.urandom)
            question = caller.ask_at(node.address, PeerService.SHARES, [], timeout_s=10)
            expected = "is not served here yet" if versions.highest > 1 else "speaks version 2"
            with pytest.raises(MainstemError, match=expected):
                await question
            await caller.close()

    async with asyncio.timeout(30):
        settings = config(tmp_path, 1)
        first = member(settings)
        founded = await first.open()
        assert founded.catalogue.level == HIGHEST_VERSION
        await refuses_old_nodes(first)
        await leave(first, founded)
        again = member(settings)
        reopened = await again.open()
        await refuses_old_nodes(again)
        await leave(again, reopened)


async def test_a_cluster_goes_on_while_somebody_between_its_nodes_meddles(tmp_path: Path) -> None:
    """Every tenth frame is changed; every command is carried out once, at both nodes alike."""

    async with asyncio.timeout(30):
        first = member(config(tmp_path, 1))
        founded = await first.open()
        second = member(config(tmp_path, 2, join="{}:{}".format(*first.address)))
        joined = await second.open()
        relays = [Relay(first.address), Relay(second.address)]
        for node, other, relay in ((second, first, relays[0]), (first, second, relays[1])):
            node.addresses.put(other.node, await relay.listen())
            for connection in (*node.peers._accepted, node.peers._line(other.node).current):
                if connection is not None:
                    connection.close()
        changed = itertools.count(1)

        def meddle(_: Way, frame: bytes) -> list[bytes]:
            at = next(changed)
            return [frame[:-1] + bytes([frame[-1] ^ 1])] if at % 10 == 0 else [frame]

        for relay in relays:
            relay.meddle = meddle
        for number in range(15):
            command = topic(number)
            while joined.catalogue.topic(command.name) is None:
                with contextlib.suppress(Unavailable, InvalidRequest):
                    await joined.service.submit(command)
        assert next(changed) > 20
        names = {f"t{number}" for number in range(15)}
        assert {each.name for each in founded.catalogue.topics()} == names
        assert {each.name for each in joined.catalogue.topics()} == names
        await leave(second, joined)
        await leave(first, founded)
        for relay in relays:
            await relay.close()


def test_a_join_request_has_the_tag_that_older_nodes_read() -> None:
    data = msgspec.msgpack.encode(NodeJoinRequest(NodeId(1), "host", 9094, is_new=True))
    assert msgspec.msgpack.decode(data)[0] == "Knock"
