"""From a data folder to a running catalogue, the first time, again, and after losses."""

import asyncio
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.kit.clock import ManualClock

from mainstem.model.errors import Corrupt, InvalidRequest, UnknownVersion
from mainstem.model.features import OWN_LEVELS
from mainstem.model.ids import NodeId, TopicId
from mainstem.model.metadata import Node
from mainstem.placement.changes import commands
from mainstem.placement.persistence.export_storage import read_export
from mainstem.placement.persistence.identity_storage import (
    new_uuid_text,
    open_identity,
    write_level,
)
from mainstem.placement.persistence.journal_storage import JournalStorage
from mainstem.placement.persistence.rebuilding import RebuildableRange
from mainstem.placement.startup_service import Placement, StartupOptions, open_placement

NODE = Node(NodeId(1), "host", 9092)
ID = TopicId(b"i" * 16)


async def opened(
    data: Path,
    *,
    node: Node = NODE,
    cluster_id: str | None = None,
    found: Sequence[RebuildableRange] = (),
    rebuild: bool = False,
) -> Placement:
    start = StartupOptions(
        data=data,
        node=node,
        cluster_id=cluster_id,
        directory="disk",
        scan=lambda: found,
        rebuild=rebuild,
    )
    return await open_placement(start, ManualClock(), lambda error: pytest.fail(str(error)))


async def life(data: Path, **how: object) -> Placement:
    """Open, create the topic if there is none, close."""

    placement = await opened(data, **how)  # type: ignore[arg-type]
    if placement.catalogue.topic("t") is None:
        command = commands.CreateTopic(ID, "t", 2, 1, {"retention.ms": "5"})
        await placement.service.submit(command)
    await placement.close()
    return placement


async def peek(data: Path, **how: object) -> Placement:
    placement = await opened(data, **how)  # type: ignore[arg-type]
    await placement.close()
    return placement


async def test_every_start_is_a_new_incarnation_of_the_same_node(tmp_path: Path) -> None:
    first, second = await life(tmp_path), await life(tmp_path)
    assert (first.incarnation, second.incarnation) == (1, 2)
    assert first.identity == second.identity
    assert second.catalogue.cluster_id == first.identity.cluster_id
    assert len(first.identity.cluster_id) == 22
    assert second.catalogue.topic("t") == first.catalogue.topic("t")


async def test_a_cluster_may_be_named_before_its_first_start(tmp_path: Path) -> None:
    assert (await life(tmp_path, cluster_id="production")).catalogue.cluster_id == "production"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"node": Node(NodeId(2), "host", 9092)}, "belongs to node 1"),
        ({"cluster_id": "another"}, "belongs to cluster"),
    ],
)
async def test_the_folder_of_another_node_or_cluster_is_refused(
    tmp_path: Path, how: dict[str, object], message: str
) -> None:
    await life(tmp_path)
    with pytest.raises(InvalidRequest, match=message):
        await life(tmp_path, **how)


def test_a_flipped_byte_in_the_identity_is_corrupt(tmp_path: Path) -> None:
    open_identity(tmp_path, node_id=NodeId(1), cluster_id=None, now_ms=5)
    path = tmp_path / "node.json"
    whole = path.read_bytes()
    for at in range(len(whole)):
        if whole[at : at + 1].isspace():
            continue  # layout carries no meaning
        damaged = bytearray(whole)
        damaged[at] ^= 0x01
        path.write_bytes(damaged)
        with pytest.raises(Corrupt):
            open_identity(tmp_path, node_id=NodeId(1), cluster_id=None, now_ms=5)


async def test_a_lost_identity_takes_its_cluster_from_the_catalogue(tmp_path: Path) -> None:
    before = await life(tmp_path)
    (tmp_path / "node.json").unlink()
    after = await life(tmp_path)
    assert after.identity.cluster_id == before.identity.cluster_id


def test_ids_for_people_have_22_characters_and_no_leading_dash() -> None:
    ids = {new_uuid_text() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(text) == 22 and not text.startswith("-") for text in ids)


async def test_the_export_is_readable_and_complete(tmp_path: Path) -> None:
    await life(tmp_path)
    exported = json.loads((tmp_path / "topic_metadata.json").read_text())["catalogue"]
    [topic] = exported["topics"]
    assert topic["name"] == "t"
    assert topic["created_at"] == "2023-11-14T22:13:20.000+00:00"
    assert topic["configs"] == {"retention.ms": "5"}
    assert [part["partition"] for part in topic["partitions"]] == [0, 1]


async def test_a_damaged_export_is_as_good_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await life(tmp_path)
    path = tmp_path / "topic_metadata.json"
    path.write_text(path.read_text().replace('"retention.ms": "5"', '"retention.ms": "6"'))
    with caplog.at_level(logging.WARNING):
        assert read_export(path) is None
    assert "wrong checksum" in caplog.text


async def test_a_lost_catalogue_is_rebuilt_from_folders_and_export(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = await life(tmp_path)
    shutil.rmtree(tmp_path / "catalogue")
    found = [RebuildableRange("t", ID, 1, 0, 0, 0, 0, 33)]
    with caplog.at_level(logging.WARNING):
        after = await peek(tmp_path, found=found)
    topic = after.catalogue.topic("t")
    assert topic is not None
    assert (topic.id, topic.configs, len(topic.streams)) == (ID, {"retention.ms": "5"}, 2)
    assert after.identity == before.identity
    assert after.catalogue.next_producer_id > before.catalogue.next_producer_id
    assert "the catalogue was lost; rebuilt 1 topics" in caplog.text
    assert (await peek(tmp_path, found=found)).catalogue.topic("t") == topic, (
        "once rebuilt, it stays"
    )


async def test_a_rebuild_that_was_interrupted_is_done_again(tmp_path: Path) -> None:
    """Opening makes the files; the rebuilt topics are one frame, all or nothing."""
    await life(tmp_path)
    shutil.rmtree(tmp_path / "catalogue")

    def interrupted() -> list[RebuildableRange]:
        raise KeyboardInterrupt

    start = StartupOptions(
        data=tmp_path, node=NODE, cluster_id=None, directory="disk", scan=interrupted
    )
    with pytest.raises(KeyboardInterrupt):
        await open_placement(start, ManualClock(), lambda error: None)
    assert (await peek(tmp_path)).catalogue.topic("t") is not None


async def test_a_new_folder_is_not_taken_for_a_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert not list((await peek(tmp_path)).catalogue.topics())
    assert not caplog.records


async def test_a_damaged_catalogue_stops_the_start_unless_a_rebuild_is_asked_for(
    tmp_path: Path,
) -> None:
    await life(tmp_path)
    journal = tmp_path / "catalogue" / "journal"
    damaged = bytearray(journal.read_bytes())
    damaged[100] ^= 0xFF
    journal.write_bytes(damaged)
    with pytest.raises(Corrupt, match="--rebuild-catalogue"):
        await peek(tmp_path)
    assert journal.read_bytes() == damaged, "the evidence is left as it is"
    after = await peek(tmp_path, rebuild=True)
    assert after.catalogue.topic("t") is not None
    assert (tmp_path / "catalogue.damaged-1" / "journal").read_bytes() == damaged


async def test_a_fact_of_a_newer_version_stops_the_start(tmp_path: Path) -> None:
    await life(tmp_path)
    journal = JournalStorage(tmp_path / "catalogue")
    journal.open()
    journal.append_now(b'{"type":"SomethingNew"}')
    journal.close()
    with pytest.raises(UnknownVersion, match="a fact SomethingNew"):
        await peek(tmp_path)


async def test_the_export_follows_changes_while_the_node_runs(tmp_path: Path) -> None:
    placement = await opened(tmp_path)
    placement.export._interval_s = 0.01
    await placement.service.submit(commands.CreateTopic(ID, "t", 1, 1))
    for _ in range(200):
        await asyncio.sleep(0.01)
        exported = read_export(tmp_path / "topic_metadata.json")
        if exported is not None and exported.topics:
            break
    else:
        pytest.fail("the export was not written")
    await placement.close()


async def test_a_folder_says_at_which_level_it_is_written(tmp_path: Path) -> None:
    open_identity(tmp_path, node_id=NodeId(1), cluster_id="c", now_ms=5)
    path = tmp_path / "node.json"
    first = json.loads(path.read_bytes())["identity"]
    assert first == {"version": 1, "cluster_id": "c", "node_id": 1, "created_ms": 5}, "as 0.1 does"
    await life(tmp_path)
    raised = json.loads(path.read_bytes())["identity"]
    assert (raised["version"], raised["level"]) == (2, OWN_LEVELS[1])
    write_level(tmp_path, open_identity(tmp_path, node_id=NodeId(1), cluster_id="c", now_ms=5), 9)
    with pytest.raises(InvalidRequest, match="the cluster is at mainstem"):
        await life(tmp_path)
