"""Names on disk: the paths of ranges, and how to parse them.

    topics/<encoded name>~<topic id>/partition-<n>/range-<i>.g<generation>/<20 digits>.log

Any text is a legal topic name here: special characters are encoded as ``%XX``, and since the
id follows, no name can be ``.`` or ``..`` or leave the directory. Names longer than a file name may
be are shortened; ``topic.header`` inside the directory holds the full name.
"""

import os
import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mainstem.model import limits
from mainstem.model.ids import StreamId, TopicId, topic_id_text

TOPICS = "topics"
DELETED_SUFFIX = ".deleted"
ASIDE_SUFFIX = ".aside"
UNFINISHED_SUFFIX = ".tmp"
TOPIC_HEADER = "topic.header"
RANGE_HEADER = "range.header"
RANGE_SEAL = "range.seal"
OPENING_SNAPSHOT = "opening.snapshot"
COMPACTION_MARK = "compaction.mark"
LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"

_NAME_LENGTH_MAX = 200  # with the id and a suffix this stays below the 255 bytes of a file name
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_RANGE = re.compile(r"range-(\d+)\.g(\d+)")
_PARTITION = re.compile(r"partition-(\d+)")
_SEGMENT = re.compile(r"(\d{20})\.log")


@dataclass(frozen=True, slots=True)
class RangeName:
    """Identifies one range replica on this disk."""

    stream: StreamId
    topic_name: str
    index: int
    generation: int


def encode_name(name: str) -> str:
    """The path-safe form of a topic name."""
    raw = name.encode("utf-8", "surrogatepass")
    text = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)
    return "%2E" + text[1:] if text.startswith(".") else text


def decode_name(text: str) -> str:
    """The topic name of a path-safe form that was not shortened."""
    raw = _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode("ascii"))
    return raw.decode("utf-8", "surrogatepass")


def topic_directory_name(name: str, topic: TopicId) -> str:
    """The directory of a topic incarnation."""
    return f"{encode_name(name)[:_NAME_LENGTH_MAX]}~{topic_id_text(topic)}"


def parse_topic_directory(directory: str) -> tuple[str, TopicId] | None:
    """Name (perhaps shortened) and id, or None for a directory of something else."""
    text, tilde, id_text = directory.rpartition("~")
    if not tilde or not _TOPIC_ID.fullmatch(id_text):
        return None
    try:
        return decode_name(text), TopicId(urlsafe_b64decode(id_text + "=="))
    except ValueError:
        return None


@lru_cache(limits.RANGE_PATHS_CACHED_MAX)
def range_directory(data_dir: Path, name: RangeName) -> Path:
    """The directory of a range."""
    return (
        data_dir
        / TOPICS
        / topic_directory_name(name.topic_name, name.stream.topic)
        / f"partition-{name.stream.partition}"
        / f"range-{name.index}.g{name.generation}"
    )


def parse_range_directory(directory: str) -> tuple[int, int] | None:
    """Index and generation, or None for something else."""
    found = _RANGE.fullmatch(directory)
    return (int(found[1]), int(found[2])) if found else None


def parse_partition_directory(directory: str) -> int | None:
    """The partition, or None for something else."""
    found = _PARTITION.fullmatch(directory)
    return int(found[1]) if found else None


def segment_path(directory: Path, base_offset: int) -> Path:
    """The log file of a segment; its indexes differ in the suffix."""
    return directory / f"{base_offset:020d}{LOG_SUFFIX}"


def segment_bases(directory: Path) -> list[int]:
    """Base offsets of the segments in a range directory, ascending."""
    found = map(_SEGMENT.fullmatch, names_in(directory))
    return sorted(int(match[1]) for match in found if match)


def names_in(directory: Path) -> list[str]:
    """The names of what is in a directory."""
    # A path for every entry costs more than the system call, and every range is opened with these.
    return os.listdir(directory)  # noqa: PTH208
