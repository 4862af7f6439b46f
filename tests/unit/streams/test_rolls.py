"""A roll waits for the catalogue however long it is silent, and ends nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.kit.streams import StreamNode

from mainstem.cluster.raft.drivers.pending_driver import OutcomeUnknown
from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.placement.changes.commands import DeleteTopic, SealAndCreate


@pytest.mark.parametrize("is_recorded", [False, True])
async def test_a_stream_with_one_copy_rolls_once_the_catalogue_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_recorded: bool
) -> None:
    async with StreamNode(tmp_path) as node:
        await node.create(internal_segment_bytes="1024")
        service = node.placement.service
        submit, asked = service.submit, list[str]()

        async def silent(command: Any) -> Any:
            if isinstance(command, SealAndCreate) and len(asked) < 3:
                asked.append(command.request_id)
                if is_recorded and len(asked) == 1:
                    await submit(command)  # and the answer is lost
                raise OutcomeUnknown("not committed in time")
            return await submit(command)

        monkeypatch.setattr(service, "submit", silent)
        async with asyncio.timeout(60):
            offsets = [await node.write(b"x" * 400) for _ in range(60)]
            await node.rolls.settled()
        assert node.fatal == []
        assert offsets == list(range(60))
        assert len(asked) == 1 if is_recorded else 3
        assert len(set(asked)) == 1, "the same request each time"
        assert len(node.streams.partition("t", 0).known.ranges) >= 2
    async with StreamNode(tmp_path) as node:
        assert len(node.records()) == 60


async def test_a_topic_that_is_deleted_while_its_roll_waits_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with StreamNode(tmp_path) as node:
        topic = await node.create(internal_segment_bytes="1024")
        service = node.placement.service
        submit = service.submit

        async def silent(command: Any) -> Any:
            if isinstance(command, SealAndCreate):
                raise Unavailable(ErrorCode.TIMED_OUT, "nobody answers")
            return await submit(command)

        monkeypatch.setattr(service, "submit", silent)
        writes = [asyncio.create_task(node.write(b"x" * 400)) for _ in range(60)]
        await asyncio.sleep(0.05)
        assert node.fatal == []
        await service.submit(DeleteTopic(topic.id))
        async with asyncio.timeout(60):
            await asyncio.gather(*writes, return_exceptions=True)
            await node.rolls.settled()
        assert node.fatal == []
