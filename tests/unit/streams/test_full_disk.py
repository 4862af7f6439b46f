"""A full disk refuses writes and ends nothing; everything goes on when there is space again."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.streams.full_disk import FullDisk
from tests.unit.streams.house import House

from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.streams import held_replica_driver, roles_service, roll_driver, storage_retry_driver
from mainstem.streams.retention_driver import RetentionDriver

PATIENCE_S = 30
WRITES = 24


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    for module in (held_replica_driver, roles_service, roll_driver, storage_retry_driver):
        monkeypatch.setattr(module, "RETRY_S", 0.01)
    return FullDisk(monkeypatch, tmp_path)


async def attempted(house: House, number: int) -> int | None:
    """Write one record; its number once it is acknowledged, None if it was refused."""
    try:
        await house.write(b"%06d" % number + b"x" * 400)
    except MainstemError as error:
        if error.code not in {ErrorCode.DISK_FULL, ErrorCode.OVERLOADED}:
            raise
        return None
    return number


async def written(house: House, first: int) -> list[asyncio.Task[int | None]]:
    """Begin as many writes as make several segments and ranges."""
    begun = []
    for number in range(first, first + WRITES):
        begun.append(asyncio.create_task(attempted(house, number)))
        await asyncio.sleep(0.001)
    return begun


async def acknowledged(begun: list[asyncio.Task[int | None]]) -> set[int]:
    async with asyncio.timeout(PATIENCE_S):
        return {number for number in await asyncio.gather(*begun) if number is not None}


def numbers(house: House) -> list[int]:
    return [int(value[:6]) for _, value in house.records() if value is not None]


@pytest.mark.parametrize("room", range(28))
def test_wherever_the_space_ends_the_node_goes_on_and_starts_again(
    tmp_path: Path, disk: FullDisk, room: int
) -> None:
    async def story() -> None:
        async with House(tmp_path / "data") as house:
            retention = RetentionDriver(house.streams, house.store, house.flusher, house.clock)
            await house.create(segment_bytes="1024")
            known = await acknowledged(await written(house, 0))
            assert len(known) == WRITES
            disk.room = room
            begun = await written(house, 100)
            await retention.run_once()
            assert house.fatal == []
            assert set(numbers(house)) >= known
            disk.room = None
            known |= await acknowledged(begun)
            known |= await acknowledged(await written(house, 200))
            assert len(known) >= 2 * WRITES
            assert set(numbers(house)) >= known
        async with House(tmp_path / "data") as house:
            assert set(numbers(house)) >= known
            again = await acknowledged(await written(house, 300))
            assert len(again) == WRITES

    asyncio.run(story())


def test_a_node_that_stops_on_a_full_disk_starts_again(tmp_path: Path, disk: FullDisk) -> None:
    async def story() -> None:
        async with House(tmp_path / "data") as house:
            await house.create()
            known = await acknowledged(await written(house, 0))
            disk.room = 0
        disk.room = None
        async with House(tmp_path / "data") as house:
            assert set(numbers(house)) >= known

    asyncio.run(story())


def test_a_clean_stop_is_not_believed_twice_on_a_full_disk(tmp_path: Path, disk: FullDisk) -> None:
    async def story() -> None:
        data = tmp_path / "data"
        async with House(data) as house:
            await house.create()
            await acknowledged(await written(house, 0))
        disk.room = 0
        house = House(data)
        with pytest.raises(MainstemError) as refused:  # no room for the new epoch of the stream
            await house.__aenter__()
        assert refused.value.code is ErrorCode.DISK_FULL
        assert b'"clean":false' in (data / "log.checkpoint").read_bytes()

    asyncio.run(story())
