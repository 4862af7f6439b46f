"""Identity of a range: the header in its directory, checked whenever it is opened.

A directory that was copied from another node, restored from an old backup or belongs to an earlier
incarnation of a topic has another header and is refused, instead of being served as the range that
the catalogue means.
"""

from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from mainstem.log.disk.checked_file import read_checked, write_checked
from mainstem.log.naming import (
    RANGE_HEADER,
    RANGE_SEAL,
    TOPIC_HEADER,
    RangeName,
    range_directory,
)
from mainstem.model.errors import Corrupt
from mainstem.model.ids import PartitionIndex, StreamId, TopicId

RANGE_KIND = b"RH"
TOPIC_KIND = b"TH"
SEAL_KIND = b"SE"
SNAPSHOT_KIND = b"SN"
MARK_KIND = b"CM"

_RANGE = Struct(">16siiiiq16s")
_SEAL = Struct(">qqqqI")


@dataclass(frozen=True, slots=True)
class RangeIdentity:
    """One range replica on this disk."""

    name: RangeName
    epoch: int
    start_offset: int
    directory_id: bytes

    def path(self, data_dir: Path) -> Path:
        """The directory of the range."""
        return range_directory(data_dir, self.name)

    def write(self, directory: Path) -> list[Path]:
        """Write topic and range header; returns the files to make durable."""
        topic_header = self.topic_header(directory)
        written = []
        if not topic_header.exists():
            payload = self.name.stream.topic + self.name.topic_name.encode("utf-8", "surrogatepass")
            write_checked(topic_header, TOPIC_KIND, payload, sync=False)
            written.append(topic_header)
        write_checked(directory / RANGE_HEADER, RANGE_KIND, self.packed(), sync=False)
        written.append(directory / RANGE_HEADER)
        return written

    def check(self, directory: Path) -> None:
        """Raise ``Corrupt`` unless the directory holds this very range."""
        path = directory / RANGE_HEADER
        try:
            found = read_checked(path, RANGE_KIND)
        except FileNotFoundError:
            raise Corrupt("the range header is missing", subject=str(path)) from None
        if found != self.packed():
            raise Corrupt(
                f"the directory holds {describe(found)}, not {describe(self.packed())}",
                subject=str(path),
            )

    @staticmethod
    def topic_header(directory: Path) -> Path:
        """The file of the topic that a range directory belongs to."""
        return directory.parent.parent / TOPIC_HEADER

    def packed(self) -> bytes:
        """The content of its header."""
        name = self.name
        numbers = (name.index, name.generation, self.epoch)
        return pack_range_header(name.stream, numbers, self.start_offset, self.directory_id)


@dataclass(frozen=True, slots=True)
class RangeHeader:
    """The content of a range header."""

    stream: StreamId
    index: int
    generation: int
    epoch: int
    start_offset: int
    directory_id: bytes


def pack_range_header(
    stream: StreamId, numbers: tuple[int, int, int], start_offset: int, directory_id: bytes
) -> bytes:
    """The payload of a range header; ``numbers`` are index, generation and epoch."""
    return _RANGE.pack(stream.topic, stream.partition, *numbers, start_offset, directory_id)


def read_range_header(directory: Path) -> RangeHeader:
    """The header of a range directory; ``Corrupt`` or ``FileNotFoundError`` otherwise."""
    payload = read_checked(directory / RANGE_HEADER, RANGE_KIND)
    if len(payload) != _RANGE.size:
        raise Corrupt(f"{len(payload)} bytes of range header", subject=str(directory))
    topic, partition, index, generation, epoch, start, directory_id = _RANGE.unpack(payload)
    stream = StreamId(TopicId(topic), PartitionIndex(partition))
    return RangeHeader(stream, index, generation, epoch, start, directory_id)


def describe(payload: bytes) -> str:
    """A header in readable form."""
    topic, partition, index, generation, epoch, start, directory_id = _RANGE.unpack(payload)
    stream = StreamId(TopicId(topic), PartitionIndex(partition))
    return (
        f"range {index}.g{generation} of {stream}, epoch {epoch}, from offset {start}, "
        f"directory {directory_id.hex()}"
    )


def read_topic_header(topic_directory: Path) -> tuple[TopicId, str]:
    """Id and full name of a topic."""
    payload = read_checked(topic_directory / TOPIC_HEADER, TOPIC_KIND)
    return TopicId(payload[:16]), payload[16:].decode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class RangeSeal:
    """What was in a range when it was sealed; nothing may be missing or more."""

    until_offset: int
    size_bytes: int
    max_timestamp: int
    offset_of_max_timestamp: int
    segment_count: int

    def write(self, directory: Path, *, sync: bool) -> None:
        """Write the seal."""
        payload = _SEAL.pack(
            self.until_offset,
            self.size_bytes,
            self.max_timestamp,
            self.offset_of_max_timestamp,
            self.segment_count,
        )
        write_checked(directory / RANGE_SEAL, SEAL_KIND, payload, sync=sync)


def read_seal(directory: Path) -> RangeSeal | None:
    """The seal of a range, None when it was not sealed; ``Corrupt`` when it is damaged."""
    try:
        payload = read_checked(directory / RANGE_SEAL, SEAL_KIND)
    except FileNotFoundError:
        return None
    if len(payload) != _SEAL.size:
        raise Corrupt(f"{len(payload)} bytes of seal", subject=str(directory / RANGE_SEAL))
    return RangeSeal(*_SEAL.unpack(payload))
