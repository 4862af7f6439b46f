"""Reads the files of a Raft node, sharing no code with it: raft_decoder.py FOLDER prints them."""

import sys
from pathlib import Path
from pprint import pformat
from struct import unpack_from
from typing import Any

import msgspec
from crc32c import crc32c


def log_file(data: bytes) -> dict[str, Any]:
    """One ``.wal`` file: where it begins, how far it is durable, its frames."""
    assert data[:8] == b"MSRAFTW1"
    first, checksum = unpack_from(">QI", data, 8)
    assert checksum == crc32c(data[:16])
    durable, checksum = unpack_from(">QI", data, 32)
    assert checksum == crc32c(data[32:40])
    frames = []
    number, position = first, 64
    while position < len(data):
        length, checksum, found = unpack_from(">IIQ", data, position)
        payload = data[position + 16 : position + 16 + length]
        assert (found, checksum) == (number, crc32c(data[position + 8 : position + 16] + payload))
        state, start, entries = msgspec.msgpack.decode(payload)
        frames.append({"number": number, "state": state, "start": start, "entries": entries})
        number += 1
        position += 16 + length
    return {"first": first, "durable": durable, "frames": frames}


def snapshot_file(data: bytes) -> dict[str, Any]:
    """One ``.snap`` file: what it stands for, and the state."""
    assert data[:8] == b"MSRAFTS1"
    described, state, checksum = unpack_from(">IQI", data, 8)
    assert checksum == crc32c(data[24:])
    assert len(data) == 24 + described + state
    index, term, members = msgspec.msgpack.decode(data[24 : 24 + described])
    return {"index": index, "term": term, "members": members, "state": data[24 + described :]}


def decode(path: Path) -> dict[str, Any]:
    """Whatever kind of file it is."""
    return (log_file if path.suffix == ".wal" else snapshot_file)(path.read_bytes())


if __name__ == "__main__":
    for path in sorted(Path(sys.argv[1]).glob("*.*")):
        sys.stdout.write(f"{path.name}\n{pformat(decode(path))}\n")
