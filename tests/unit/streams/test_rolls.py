"""A roll waits for the catalogue however long it is silent, and ends nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.streams.house import House

from mainstem.cluster.raft.answers_driver import OutcomeUnknown
from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.placement.records import DeleteTopic, SealAndCreate


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_stream_with_one_copy_rolls_once_the_catalogue_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_recorded: bool
) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            await house.create(internal_segment_bytes="1024")
            service = house.placement.service
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
                offsets = [await house.write(b"x" * 400) for _ in range(60)]
                await house.rolls.settled()
            assert house.fatal == []
            assert offsets == list(range(60))
            assert len(asked) == 1 if is_recorded else 3
            assert len(set(asked)) == 1, "the same request each time"
            assert len(house.streams.door("t", 0).known.ranges) >= 2
        async with House(tmp_path) as house:
            assert len(house.records()) == 60

    asyncio.run(story())


def test_a_topic_that_is_deleted_while_its_roll_waits_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            topic = await house.create(internal_segment_bytes="1024")
            service = house.placement.service
            submit = service.submit

            async def silent(command: Any) -> Any:
                if isinstance(command, SealAndCreate):
                    raise Unavailable(ErrorCode.TIMED_OUT, "nobody answers")
                return await submit(command)

            monkeypatch.setattr(service, "submit", silent)
            writes = [asyncio.create_task(house.write(b"x" * 400)) for _ in range(60)]
            await asyncio.sleep(0.05)
            assert house.fatal == []
            await service.submit(DeleteTopic(topic.id))
            async with asyncio.timeout(60):
                await asyncio.gather(*writes, return_exceptions=True)
                await house.rolls.settled()
            assert house.fatal == []

    asyncio.run(story())
