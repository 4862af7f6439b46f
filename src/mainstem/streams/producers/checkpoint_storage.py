"""The node's checkpoint of producer states: one file that spares a start the scan of batch headers.

Everything in it can be derived from the log, so a missing or damaged file costs time only.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from mainstem.log.disk.checked_file import read_checked, write_checked
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt

log = logging.getLogger(__name__)

NAME = "producers.checkpoint"
KIND = b"PC"

Checkpoint = Mapping[str, tuple[int, bytes]]  # stream id as text: offset, producer snapshot

_decode = msgspec.msgpack.Decoder(dict[str, tuple[int, bytes]]).decode


def read_producers(data_dir: Path) -> Checkpoint:
    """The last checkpoint; empty if it cannot be read."""
    try:
        return _decode(read_checked(data_dir / NAME, KIND))
    except FileNotFoundError:
        return {}
    except (Corrupt, *DECODE_ERRORS) as error:
        log.warning("producer states are derived from the log: %s", error)
        return {}


def write_producers(data_dir: Path, checkpoint: Checkpoint) -> None:
    """Replace the file."""
    payload = msgspec.msgpack.encode(dict(checkpoint))
    write_checked(data_dir / NAME, KIND, payload, sync=True)
