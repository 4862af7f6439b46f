"""A topic is configured anew while several nodes hold it, only one of which writes it."""

from pathlib import Path

from tests.kit.cluster import TOPIC_ID, StreamCluster
from tests.kit.loop import virtual_time
from tests.kit.waiting import eventually

from mainstem.placement.changes.commands import SetTopicConfigs

pytestmark = virtual_time


async def test_nodes_that_do_not_write_a_topic_take_note_of_its_new_settings(
    tmp_path: Path,
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        topic = await cluster.create()
        await cluster.write(b"first")
        configs = dict(topic.configs) | {"max.message.bytes": "2000"}
        command = SetTopicConfigs(TOPIC_ID, dict(topic.configs), configs)
        await cluster.placement.service.submit(command)
        former = cluster.writer
        assert former.streams.partition("t", 0).settings.max_message_bytes == 2000
        assert all(node.fatal == [] for node in cluster.nodes.values())
        await former.crash()
        await cluster.fence(former)
        await cluster.write(b"second")
        await eventually(lambda: cluster.values() == [b"first", b"second"])
        assert cluster.writer.streams.partition("t", 0).settings.max_message_bytes == 2000


async def test_a_catalogue_that_was_replaced_as_a_whole_is_taken_up(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"first")
        for node in cluster.nodes.values():
            node.streams.lifecycle.resync()
        await cluster.write(b"second")
        assert cluster.values() == [b"first", b"second"]
