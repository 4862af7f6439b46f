"""Files as a stream: every new file is read once.

The files seen so far are numbered in ``seen.jsonl`` in the connector's folder; a batch is a range
of those numbers, so a batch that is repeated reads the same files. A file must be complete when it
appears: write it under a hidden name (starting with a dot or an underscore) and rename it.
"""

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from mainstem.pipelines.object_store.formats import Format, json_values
from mainstem.pipelines.object_store.stores import FileStore, FolderStore, StoredFile
from mainstem.pipelines.spark.settings_source import SettingsSource

_ARROW = pa.schema([("value", pa.binary()), ("file", pa.string())])
SEEN = "seen.jsonl"


class FileSourceOptions(Struct, frozen=True, kw_only=True):
    """The files to read; passed to the tasks as an option of the data source."""

    format: Format
    pattern: str
    files_per_batch: int
    state_dir: str
    folder: str = ""
    bucket: dict[str, Any] = {}
    delete: bool = False
    tasks: int = 8

    def store(self) -> FileStore:
        """The store of the files."""
        if self.folder:
            return FolderStore(Path(self.folder))
        from mainstem.pipelines.object_store.bucket import Bucket, BucketSettings

        return Bucket(msgspec.convert(self.bucket, BucketSettings))


def is_wanted(path: str, pattern: str) -> bool:
    """Whether a file is to be read; hidden files and folders never are."""
    parts = path.split("/")
    return fnmatch(parts[-1], pattern) and not any(part[:1] in {".", "_"} for part in parts)


def files_of(store: FileStore, pattern: str) -> list[StoredFile]:
    """The files to be read, oldest first."""
    found = (stored for stored in store.files("") if is_wanted(stored.path, pattern))
    return sorted(found, key=lambda stored: (stored.modified_s, stored.path))


class SeenFiles:
    """The numbered list of files, stored on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.paths: list[str] = []
        if path.exists():
            whole, _, torn = path.read_bytes().rpartition(b"\n")
            self.paths = [msgspec.json.decode(line, type=str) for line in whole.splitlines()]
            if torn:  # a torn last line was never part of an offset
                os.truncate(path, len(whole) + (1 if whole else 0))
        self._known = set(self.paths)

    def add(self, paths: list[str]) -> None:
        """Number files that were not seen before, and flush the list to disk."""
        fresh = [path for path in paths if path not in self._known]
        if not fresh:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.writelines(msgspec.json.encode(path) + b"\n" for path in fresh)
            file.flush()
            os.fsync(file.fileno())
        self.paths += fresh
        self._known.update(fresh)


class _FilePartition(InputPartition):
    def __init__(self, paths: list[str]) -> None:
        super().__init__(None)
        self.paths = paths


def _shared_out(paths: list[str], tasks: int) -> list[_FilePartition]:
    size = max(1, -(-len(paths) // tasks))
    return [_FilePartition(paths[low : low + size]) for low in range(0, len(paths), size)]


def _read(options: FileSourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, _FilePartition)
    store = options.store()
    for path in partition.paths:
        with store.reader(path) as file:
            for values in json_values(options.format, file, path):
                columns = [pa.array(values, pa.binary()), pa.array([path] * len(values))]
                yield pa.RecordBatch.from_arrays(columns, schema=_ARROW)


class _FileBatchReader(DataSourceReader):
    def __init__(self, options: FileSourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        found = files_of(self._options.store(), self._options.pattern)
        return _shared_out([stored.path for stored in found], self._options.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class _FileStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of files; offsets count files. Only the driver's process opens the list."""

    def __init__(self, options: FileSourceOptions) -> None:
        self._options = options
        self._seen: SeenFiles | None = None
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"file": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = len(self._look().paths)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        del limit  # files are not split
        done = start["file"]
        end = len(self._look().paths) if self._target is None else self._target
        return {"file": max(done, min(end, done + self._options.files_per_batch))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        paths = self._list().paths[start["file"] : end["file"]]
        return _shared_out(paths, self._options.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def commit(self, end: dict[str, int]) -> None:
        """Delete files if configured: their records are stored in the topic."""
        if self._options.delete:
            self._options.store().delete(self._list().paths[: end["file"]])

    def _list(self) -> SeenFiles:
        if self._seen is None:
            self._seen = SeenFiles(Path(self._options.state_dir) / SEEN)
        return self._seen

    def _look(self) -> SeenFiles:
        seen = self._list()
        found = files_of(self._options.store(), self._options.pattern)
        seen.add([stored.path for stored in found])
        return seen


class ObjectsDataSource(SettingsSource):
    """The data source of values, each with the name of its file."""

    format_name = "mainstem-objects"
    columns = "value binary, file string"
    settings = FileSourceOptions
    table_reader = _FileBatchReader
    stream_reader = _FileStreamReader
