"""Small files of a state folder, replaced atomically, so that readers see a consistent state."""

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from mainstem.model.versioned_json import decoded

Kind = TypeVar("Kind")


def replace_json(path: Path, value: object, *, durable: bool = False) -> None:
    """Replace the content of the file; with ``durable`` it is flushed to disk."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with fresh.open("wb") as file:
        file.write(msgspec.json.encode(value))
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)


def read_json(path: Path, kind: type[Kind], what: str) -> Kind | None:
    """The content of the file; None when it does not exist.

    Raises:
        UnknownVersion: a later release wrote it, in a newer format.
    """
    try:
        return decoded(path.read_bytes(), kind, what, str(path))
    except FileNotFoundError:
        return None
