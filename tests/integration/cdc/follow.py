"""Follows a database as Spark would, without Spark: batch by batch, each told through Arrow."""

import json
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from mainstem.pipelines.cdc.postgres_follower import Follower
from mainstem.pipelines.cdc.postgres_position import Position
from mainstem.pipelines.cdc.postgres_reader import ChangesReader
from mainstem.pipelines.cdc.postgres_settings import PostgresCdcConfig
from mainstem.pipelines.cdc.reader import ReaderSettings

Told = dict[str, Any]


class Following:
    """One query's life; ``again`` begins the next one on the same folder and checkpoint."""

    opened: ClassVar[list["Following"]] = []

    def __init__(
        self, config: PostgresCdcConfig, folder: Path, start: Position | None = None, **more: Any
    ) -> None:
        self.opened.append(self)
        self.settings = ReaderSettings(config=config, state_dir=str(folder), **more)
        self._more = more
        self._folder = folder
        self.position = start or Position()
        self.batches: list[tuple[Position, Position]] = []
        self.follower = Follower(config, folder, rehearsal=self.settings.rehearsal)

    def again(self, config: PostgresCdcConfig | None = None) -> "Following":
        self.follower.close()
        config = config or self.settings.config
        return Following(config, self._folder, self.position, **self._more)

    def step(self, rows_max: int | None = None, cap: int | None = None) -> list[Told] | None:
        """One batch; None when there is nothing new."""
        end = self.follower.next(self.position, rows_max, cap)
        if end == self.position:
            return None
        self.batches.append((self.position, end))
        told = self.read(self.position, end)
        self.follower.commit(self.position)  # as Spark does: one batch behind
        self.position = end
        return told

    def all(self, rows_max: int | None = None) -> list[Told]:
        """Everything that is there now."""
        found: list[Told] = []
        while (told := self.step(rows_max)) is not None:
            found += told
        return found

    def read(self, start: Position, end: Position) -> list[Told]:
        reader = ChangesReader(self.settings)
        parts = reader.partitions(msgspec.to_builtins(start), msgspec.to_builtins(end))
        return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def event(told: Told) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(told["value"])
    return decoded


def brief(told: list[Told]) -> list[tuple[Any, ...]]:
    """What matters of events: (op, before, after), or the key of a tombstone."""
    found: list[tuple[Any, ...]] = []
    for each in told:
        if each["value"] is None:
            found.append(("tombstone", json.loads(each["key"])))
        else:
            decoded = event(each)
            found.append((decoded["op"], decoded.get("before"), decoded.get("after")))
    return found
