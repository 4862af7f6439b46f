"""A topic is configured anew while several nodes hold it, only one of which writes it."""

import asyncio
from pathlib import Path

from tests.unit.streams.town import TOPIC_ID, Town, eventually

from mainstem.placement.records import SetTopicConfigs


def test_nodes_that_do_not_write_a_topic_take_note_of_its_new_settings(tmp_path: Path) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            topic = await town.create()
            await town.write(b"first")
            configs = dict(topic.configs) | {"max.message.bytes": "2000"}
            command = SetTopicConfigs(TOPIC_ID, dict(topic.configs), configs)
            await town.placement.service.submit(command)
            former = town.writer
            assert former.streams.door("t", 0).settings.max_message_bytes == 2000
            assert all(node.fatal == [] for node in town.nodes.values())
            await former.crash()
            await town.fence(former)
            await town.write(b"second")
            await eventually(lambda: town.values() == [b"first", b"second"])
            assert town.writer.streams.door("t", 0).settings.max_message_bytes == 2000

    asyncio.run(story())


def test_a_catalogue_that_was_replaced_as_a_whole_is_taken_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            await town.write(b"first")
            for node in town.nodes.values():
                node.streams.resync()
            await town.write(b"second")
            assert town.values() == [b"first", b"second"]

    asyncio.run(story())
