"""Follows a database as Spark would, without Spark: batch by batch, each told through Arrow."""

import json
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from mainstem.pipelines.cdc.mysql.reader import MysqlChangesReader
from mainstem.pipelines.cdc.postgres.reader import PostgresChangesReader
from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.cdc.reader import CdcStreamReader, ReaderSettings
from mainstem.pipelines.cdc.settings import CdcConfig

Told = dict[str, Any]


class Following:
    """One query's life; ``again`` begins the next one on the same folder and checkpoint."""

    opened: ClassVar[list["Following"]] = []

    def __init__(self, config: CdcConfig, folder: Path, start: Any = None, **more: Any) -> None:
        self.opened.append(self)
        self.config = config
        self._more = more
        self._folder = folder
        settings: Any = ReaderSettings(config=config, state_dir=str(folder), **more)
        is_postgres = isinstance(config, PostgresCdcConfig)
        reader = PostgresChangesReader if is_postgres else MysqlChangesReader
        self._reader: CdcStreamReader = reader(settings)
        self.position: Any = start or self._reader.position()
        self.batches: list[tuple[Any, Any]] = []
        self.follower = self._reader.follower()

    @classmethod
    def close_all(cls) -> None:
        """End the sessions of all lives."""
        while cls.opened:
            cls.opened.pop().follower.close()

    def again(self, config: CdcConfig | None = None) -> "Following":
        self.follower.close()
        return Following(config or self.config, self._folder, self.position, **self._more)

    def step(self, rows_max: int | None = None, cap: Any = None) -> list[Told] | None:
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

    def read(self, start: Any, end: Any) -> list[Told]:
        reader = self._reader
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


class Copy:
    """The table that a reader of events ends up with; steps that cannot be are refused."""

    def __init__(self) -> None:
        self.rows: dict[bytes, dict[str, Any]] = {}
        self.ops: list[str] = []

    def take(self, told: list[Told]) -> None:
        for each in told:
            key = each["key"]
            if each["value"] is None:
                assert key not in self.rows, ("a tombstone of a row that is there", key)
                continue
            change = event(each)
            op, after = change["op"], change["after"]
            self.ops.append(op)
            if change["source"]["snapshot"] == "incremental":
                assert self.rows.get(key) == after, ("a row that was read again differs", key)
            elif op == "t":
                self.rows.clear()
            else:
                assert (key in self.rows) == (op in {"u", "d"}), (op, key, change["source"])
            if op == "d":
                assert self.rows.pop(key) == change["before"]
            elif after is not None:
                self.rows[key] = after
