"""``topic_metadata.json``: the catalogue in readable form, and for rebuilding it after a loss.

Written after changes, at most once per interval, replaced atomically. It may lag behind by that
interval; the catalogue's journal is authoritative.
"""

import asyncio
import logging
from base64 import urlsafe_b64decode
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from crc32c import crc32c

from mainstem.model.clock import Clock
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.ids import NodeId, ProducerId, TopicId, topic_id_text
from mainstem.model.metadata import Topic
from mainstem.placement.changes.commands import AnyFact
from mainstem.placement.persistence.identity_storage import write_atomically
from mainstem.placement.persistence.signed_json import check_signed
from mainstem.placement.state.tables import CatalogueTables

NAME = "topic_metadata.json"
VERSION = 1
INTERVAL_S = 1.0

_log = logging.getLogger(__name__)


class ExportedPartition(msgspec.Struct, frozen=True):
    """One stream, without its individual ranges."""

    partition: int
    writer: NodeId
    epoch: int
    start_offset: int
    replicas: tuple[NodeId, ...]
    ranges: int


class ExportedTopic(msgspec.Struct, frozen=True):
    """One topic."""

    name: str
    id: str
    created_at: str
    created_ms: int
    internal: bool
    configs: dict[str, str]
    partitions: tuple[ExportedPartition, ...]

    @property
    def topic_id(self) -> TopicId:
        """The id as bytes."""
        return TopicId(urlsafe_b64decode(self.id + "=="))


class Exported(msgspec.Struct, frozen=True):
    """The whole file except its checksum."""

    version: int
    cluster_id: str
    exported_at: str
    next_producer_id: ProducerId
    topics: tuple[ExportedTopic, ...]


class _SignedExport(msgspec.Struct, frozen=True):
    catalogue: Exported
    checksum: str


class MetadataExport:
    """Keeps the file up to date; ``on_fact`` is to be subscribed to the catalogue's facts."""

    def __init__(
        self, path: Path, tables: CatalogueTables, clock: Clock, *, interval_s: float = INTERVAL_S
    ) -> None:
        self._path = path
        self._tables = tables
        self._clock = clock
        self._interval_s = interval_s
        self._writing: asyncio.Task[None] | None = None
        self._stale = False

    def on_fact(self, fact: AnyFact) -> None:
        """A fact was replayed: write the file soon."""
        del fact
        self._stale = True
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_soon())

    async def close(self) -> None:
        """Write pending changes."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        if self._stale:
            self._write()

    async def _write_soon(self) -> None:
        try:
            while self._stale:
                await asyncio.sleep(self._interval_s)
                self._stale = False
                data = encode(self._tables, self._clock.wall_ms())
                await asyncio.get_running_loop().run_in_executor(None, self._store, data)
        except asyncio.CancelledError:
            self._stale = True
            raise
        finally:
            self._writing = None

    def _write(self) -> None:
        self._stale = False
        self._store(encode(self._tables, self._clock.wall_ms()))

    def _store(self, data: bytes) -> None:
        # No data depends on the export, so a full disk must not stop the node.
        try:
            write_atomically(self._path, data)
        except OSError as error:
            _log.warning("could not write %s: %s", self._path, error)


def encode(tables: CatalogueTables, now_ms: int) -> bytes:
    """The content of the file."""
    exported = Exported(
        version=VERSION,
        cluster_id=tables.cluster_id,
        exported_at=_date(now_ms),
        next_producer_id=tables.next_producer_id,
        topics=tuple(_exported(topic) for topic in sorted(tables.topics(), key=lambda t: t.name)),
    )
    signed = _SignedExport(exported, _checksum(exported))
    return msgspec.json.format(msgspec.json.encode(signed), indent=2) + b"\n"


def read_export(path: Path) -> Exported | None:
    """The export, if it exists and is valid; a damaged one is logged and ignored.

    Raises:
        UnknownVersion: this release does not know its version.
    """
    if not path.exists():
        return None
    try:
        data = path.read_bytes()
        check_signed(data, "catalogue", range(VERSION, VERSION + 1), path)
        signed = msgspec.json.decode(data, type=_SignedExport)
    except (*DECODE_ERRORS, OSError) as error:
        _log.warning("%s is not readable and is ignored: %s", path, error)
        return None
    if signed.checksum != _checksum(signed.catalogue):
        _log.warning("%s has a wrong checksum and is ignored", path)
        return None
    return signed.catalogue


def _exported(topic: Topic) -> ExportedTopic:
    return ExportedTopic(
        name=topic.name,
        id=topic_id_text(topic.id),
        created_at=_date(topic.created_ms),
        created_ms=topic.created_ms,
        internal=topic.internal,
        configs=topic.configs,
        partitions=tuple(
            ExportedPartition(
                partition=stream.id.partition,
                writer=stream.writer,
                epoch=stream.epoch,
                start_offset=stream.start,
                replicas=stream.last.replicas,
                ranges=len(stream.ranges),
            )
            for stream in topic.streams
        ),
    )


def _date(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat(timespec="milliseconds")


def _checksum(exported: Exported) -> str:
    return f"{crc32c(msgspec.json.encode(exported)):08x}"
