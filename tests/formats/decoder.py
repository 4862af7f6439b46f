"""Reads every file that a node writes, sharing no code with it: decoder.py DATA_DIR prints them."""

import json
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from struct import Struct, unpack, unpack_from
from typing import Any

from cramjam import lz4, snappy, zstd

SUMMARY = "base until log_bytes max_timestamp max_timestamp_offset"
RANGE = "topic partition index generation epoch start directory"
SEAL = "until bytes max_timestamp max_timestamp_offset segments"
BATCH = "base length epoch magic crc attributes last_delta base_timestamp max_timestamp"
BATCH += " producer producer_epoch sequence count"


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def table_entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


CRC_TABLE = [table_entry(value) for value in range(256)]


def small_file(data: bytes) -> bytes:
    magic, _kind, version, length, crc = unpack_from(">8s2sHII", data)
    assert (magic, version, length) == (b"MAINSTEM", 1, len(data) - 20), "header"
    assert crc32c(data[8:16] + data[20:]) == crc, "checksum"
    return data[20:]


def named(names: str, values: Iterable[Any]) -> dict[str, Any]:
    return dict(zip(names.split(), values, strict=True))


def index(data: bytes) -> Any:
    magic, *summary, count, crc, header_crc = unpack_from(">8sqqQqqIII", data)
    assert (crc32c(data[:56]), crc32c(data[60:])) == (header_crc, crc), "checksum"
    entry = Struct(">II" if magic == b"MSTMOIX1" else ">qI")
    assert len(data) == 60 + count * entry.size, "length"
    return named(SUMMARY, summary) | {"entries": list(entry.iter_unpack(data[60:]))}


def log(data: bytes) -> Any:
    batches, at = [], 0
    while at < len(data):
        head = named(BATCH, unpack_from(">qiibIhiqqqhii", data, at))
        end = at + 12 + head["length"]
        assert (head["magic"], head["crc"]) == (2, crc32c(data[at + 21 : end])), f"batch at {at}"
        body = decompress(head["attributes"] & 7, data[at + 61 : end])
        batches.append(head | {"records": records(head, body)})
        at = end
    return batches


def records(head: dict[str, int], body: bytes) -> list[tuple[Any, ...]]:
    found, at = [], 0
    for _ in range(head["count"]):
        _, at = varint(body, at)
        time, at = varint(body, at + 1)
        delta, at = varint(body, at)
        key, at = field(body, at)
        value, at = field(body, at)
        count, at = varint(body, at)
        headers = []
        for _ in range(count):
            name, at = field(body, at)
            content, at = field(body, at)
            headers.append(((name or b"").decode(), content))
        time = head["max_timestamp"] if head["attributes"] & 8 else head["base_timestamp"] + time
        found.append((head["base"] + delta, time, key, value, tuple(headers)))
    return found


def varint(data: bytes, at: int, shift: int = 0, value: int = 0) -> tuple[int, int]:
    value |= (data[at] & 0x7F) << shift
    if data[at] >= 0x80:
        return varint(data, at + 1, shift + 7, value)
    return value >> 1 ^ -(value & 1), at + 1


def field(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def decompress(codec: int, data: bytes) -> bytes:
    if codec == 2 and data.startswith(b"\x82SNAPPY\0"):
        plain, at = b"", 16
        while at < len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            plain, at = plain + bytes(snappy.decompress_raw(data[at + 4 : end])), end
        return plain
    library = {2: snappy.decompress_raw, 3: lz4.decompress, 4: zstd.decompress}.get(codec)
    return bytes(library(data)) if library else zlib.decompress(data, 31) if codec else data


def journal(data: bytes) -> Any:
    magic, first, crc, durable, mark_crc = unpack_from(">8sQI12xQI", data)
    assert (magic, crc) == (b"MSJOURN1", crc32c(data[:16])), "header"
    assert crc32c(data[32:40]) == mark_crc, "mark"
    at, frames = 64, list[Any]()
    while at < len(data):
        length, crc, number = unpack_from(">IIQ", data, at)
        payload = data[at + 16 : at + 16 + length]
        assert number == first + len(frames), "frame number"
        assert crc32c(data[at + 8 : at + 16] + payload) == crc, f"frame at {at}"
        frames.append([json.loads(line) for line in payload.split(b"\n")])
        at += 16 + length
    return {"first": first, "durable": durable, "frames": frames}


def snapshot(data: bytes) -> Any:
    magic, number, length, crc = unpack_from(">8sQQI", data)
    assert (magic, length) == (b"MSSNAPS1", len(data) - 32), "header"
    assert crc32c(data[:24] + data[32:]) == crc, "checksum"
    return {"number": number, "state": json.loads(data[32:])}


READERS: dict[str, Callable[[bytes], Any]] = {
    "directory.id": small_file, "opening.snapshot": small_file, "producers.checkpoint": small_file,
    "log.checkpoint": lambda data: json.loads(small_file(data)),
    "topic.header": lambda data: (small_file(data)[:16], small_file(data)[16:].decode()),
    "range.header": lambda data: named(RANGE, unpack(">16siiiiq16s", small_file(data))),
    "range.seal": lambda data: named(SEAL, unpack(">qqqqI", small_file(data))),
    "compaction.mark": lambda data: named("clean_until horizon", unpack(">qq", small_file(data))),
    ".log": log, ".index": index, ".timeindex": index, "journal": journal, "snapshot": snapshot,
    ".json": json.loads, ".lock": bytes, "disk.ballast": bytes, "log.synced": small_file,
}  # fmt: skip


def decode(path: Path) -> Any:
    return (READERS.get(path.name) or READERS[path.suffix])(path.read_bytes())


if __name__ == "__main__":
    files = (file for file in sorted(Path(sys.argv[1]).rglob("*")) if file.is_file())
    sys.stdout.writelines(f"{file}: {decode(file)}\n" for file in files)
