"""The rows that are there already, spooled into files that a stream hands out like changes.

    tables ──one transaction──▶ spool/00000000.arrow, …, then snapshot.json: where the log stood

A transaction dies with its session, so all rows are on disk before Spark is told of them: a batch
that is repeated reads the same file. A snapshot that was not finished is begun again, and nobody
has seen anything of the first.
"""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from msgspec import Struct

from mainstem.pipelines.cdc.envelope import Record
from mainstem.pipelines.cdc.frame import arrow
from mainstem.pipelines.cdc.mysql_changes import snapshot_record
from mainstem.pipelines.cdc.mysql_server import Server
from mainstem.pipelines.cdc.mysql_settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql_table import Spot, TableShape, TableWriter, Told
from mainstem.pipelines.connector.progress import Progress, write_progress
from mainstem.pipelines.connector.shapes import TableRoute

STATE_NAME: Final = "snapshot.json"
REACHED_NAME: Final = "reached.json"
SPOOL_NAME: Final = "spool"


class SnapshotState(Struct, frozen=True, kw_only=True):
    """A finished snapshot: how many files it has, and where the stream goes on."""

    spot: Spot
    files: int
    rows: int
    at_ms: int


def take_snapshot(
    config: MysqlCdcConfig, folder: Path, routes: Sequence[TableRoute], rows_per_file: int
) -> SnapshotState:
    """Write all rows into the spool, or only note the place of the log where that is wanted."""
    spool = folder / SPOOL_NAME
    shutil.rmtree(spool, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    spool.mkdir(mode=0o700)  # the rows of somebody's tables
    server = Server(config)
    try:
        spot = server.begin_snapshot()
        at_us = time.time_ns() // 1000
        files = rows = 0
        if config.snapshot_mode != "no_data":
            shapes = server.tables(config.chosen, config.exclude_tables)
            total = sum(server.rows_estimate(each) for each in shapes)
            records = snapshot_records(server, config, routes, shapes, Told(at_us, spot))
            while chunk := list(islice(records, rows_per_file)):
                _write(spool_path(folder, files), chunk)
                files += 1
                rows += len(chunk)
                write_progress(
                    folder,
                    Progress(
                        what=f"snapshot of {config.database}", done=rows, total=max(total, rows + 1)
                    ),
                )
            write_progress(
                folder, Progress(what=f"snapshot of {config.database}", done=rows, total=rows)
            )
    finally:
        server.close()
    state = SnapshotState(spot=spot, files=files, rows=rows, at_ms=at_us // 1000)
    save(folder / STATE_NAME, state)
    return state


def snapshot_records(
    server: Server,
    config: MysqlCdcConfig,
    routes: Sequence[TableRoute],
    shapes: Sequence[TableShape],
    told: Told,
) -> Iterator[Record]:
    """The rows of tables as events of op ``r``; ends of tables and of all are marked.

    One row is held back, so that the last is known to be it.
    """
    held: tuple[TableWriter, tuple[bytes | None, ...], bool] | None = None
    is_first = True
    for shape in shapes:
        writer = TableWriter(shape, config, routes, server.flavour)
        begins = True
        for values in server.rows(shape):
            if held is not None:
                mark = _mark(is_first=is_first, begins=held[2], ends=begins)
                yield snapshot_record(held[0], held[1], _marked(told, mark))
                is_first = False
            held = (writer, values, begins)
            begins = False
    if held is not None:
        yield snapshot_record(held[0], held[1], _marked(told, "last"))


def _mark(*, is_first: bool, begins: bool, ends: bool) -> str:
    if is_first:
        return "first"
    if ends:
        return "last_in_data_collection"
    return "first_in_data_collection" if begins else "true"


def _marked(told: Told, mark: str) -> Told:
    return msgspec.structs.replace(told, snapshot=mark)


def spool_path(folder: Path, number: int) -> Path:
    """A file of the spool."""
    return folder / SPOOL_NAME / f"{number:08}.arrow"


def read_spool(folder: Path, number: int) -> Iterator[pa.RecordBatch]:
    """The records of a file of the spool."""
    with pa.memory_map(str(spool_path(folder, number))) as mapped:
        file = pa.ipc.open_file(mapped)
        for each in range(file.num_record_batches):
            yield file.get_batch(each)


def forget_spool(folder: Path, until: int) -> None:
    """Remove files that nobody will ask for again."""
    for path in sorted((folder / SPOOL_NAME).glob("*.arrow")):
        if int(path.stem) < until:
            path.unlink()


def load_snapshot(folder: Path) -> SnapshotState | None:
    """The snapshot that was finished, if one was."""
    try:
        return msgspec.json.decode((folder / STATE_NAME).read_bytes(), type=SnapshotState)
    except FileNotFoundError:
        return None


def load_reached(folder: Path) -> Spot | None:
    """The place of the log that everything before was written from, if any was."""
    try:
        return msgspec.json.decode((folder / REACHED_NAME).read_bytes(), type=Spot)
    except FileNotFoundError:
        return None


def save(path: Path, state: Struct) -> None:
    """Replace a file as a whole."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with fresh.open("wb") as out:
        out.write(msgspec.json.encode(state))
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(path)


def _write(path: Path, records: Sequence[Record]) -> None:
    batches = list(arrow(records))
    with path.open("wb") as out:
        with pa.ipc.new_file(out, batches[0].schema) as written:
            for batch in batches:
                written.write_batch(batch)
        out.flush()
        os.fsync(out.fileno())
