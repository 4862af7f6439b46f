"""Small files of a state folder, replaced as a whole: whoever reads one sees one moment."""

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from mainstem.model.versioned_json import decoded

Kind = TypeVar("Kind")


def replace_json(path: Path, value: object, *, durable: bool = False) -> None:
    """Replace what the file held; ``durable``: it is on disk when this returns."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with fresh.open("wb") as file:
        file.write(msgspec.json.encode(value))
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)


def read_json(path: Path, kind: type[Kind], what: str) -> Kind | None:
    """What the file holds; None when there is none.

    Raises:
        UnknownVersion: a later release wrote it, in a form of its own.
    """
    try:
        return decoded(path.read_bytes(), kind, what, str(path))
    except FileNotFoundError:
        return None
