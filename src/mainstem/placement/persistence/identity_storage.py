"""The owner of a data folder: ``data/node.json``, written once and checked at every start.

A folder belongs to one node of one cluster. With another node id or cluster id the node does not
start: mixing the data of two nodes cannot be undone.
"""

import os
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import msgspec
from crc32c import crc32c
from msgspec.structs import replace

from mainstem.cluster.frame_storage import sync_folder
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest
from mainstem.model.features import MAINSTEM_VERSION, check_readable
from mainstem.model.ids import NodeId
from mainstem.placement.persistence.signed_json import check_signed

NAME = "node.json"
VERSION = 1
VERSION_WITH_LEVEL = 2
VERSIONS = range(VERSION, VERSION_WITH_LEVEL + 1)


class NodeIdentity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The owner of a data folder, and at which level of ``mainstem.version`` it was written.

    At level 1 the file is that of release 0.1. Above, its version is one that release 0.1 refuses.
    """

    version: int
    cluster_id: str
    node_id: NodeId
    created_ms: int
    level: int = 1


class _SignedIdentity(msgspec.Struct, frozen=True):
    identity: NodeIdentity
    checksum: str


def new_uuid_text() -> str:
    """A random id as 22 characters of url-safe base64, never starting with a dash.

    A leading dash would look like an option on a command line.
    """
    while (text := urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def open_identity(
    data: Path,
    *,
    node_id: NodeId,
    cluster_id: str | None,
    now_ms: int,
    new_uuid: Callable[[], str] = new_uuid_text,
) -> NodeIdentity:
    """The identity of a data folder, made at the first start.

    Args:
        data: the node's data folder.
        node_id: the id that the node is configured with.
        cluster_id: the cluster it is configured for; None accepts the folder's.
        now_ms: the creation time of a new identity.
        new_uuid: source of fresh ids.

    Raises:
        InvalidRequest: the folder belongs to another node or cluster.
        Corrupt: the file is damaged.
        UnknownVersion: the file, or all that is in the folder, is of a later release.
    """
    path = data / NAME
    if not path.exists():
        data.mkdir(parents=True, exist_ok=True)
        made = NodeIdentity(VERSION, cluster_id or new_uuid(), node_id, now_ms)
        write_atomically(path, _encode(made))
        sync_folder(data.parent)  # the folder itself may be new
        return made
    found = _decode(path)
    if found.node_id != node_id:
        raise _mismatch(path, "node", found.node_id, node_id)
    if cluster_id is not None and found.cluster_id != cluster_id:
        raise _mismatch(path, "cluster", found.cluster_id, cluster_id)
    return found


def write_level(data: Path, identity: NodeIdentity, level: int) -> NodeIdentity:
    """Record in a data folder that it is written at a higher level from now on."""
    raised = replace(identity, version=VERSION_WITH_LEVEL, level=level)
    write_atomically(data / NAME, _encode(raised))
    return raised


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file so that either the old or the new content is there after a crash.

    Only the owner may read it, from the first moment on.
    """
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)  # left by a process that was killed, perhaps with another mode
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def _encode(identity: NodeIdentity) -> bytes:
    signed = _SignedIdentity(identity, _checksum(identity))
    return msgspec.json.format(msgspec.json.encode(signed), indent=2) + b"\n"


def _decode(path: Path) -> NodeIdentity:
    data = path.read_bytes()
    check_signed(data, "identity", VERSIONS, path)
    try:
        signed = msgspec.json.decode(data, type=_SignedIdentity)
    except DECODE_ERRORS as error:
        raise _damaged(path, str(error)) from error
    if signed.checksum != _checksum(signed.identity):
        raise _damaged(path, "its checksum does not match")
    check_readable({MAINSTEM_VERSION: signed.identity.level}, str(path))
    return signed.identity


def _checksum(identity: NodeIdentity) -> str:
    return f"{crc32c(msgspec.json.encode(identity)):08x}"


def _damaged(path: Path, cause: str) -> Corrupt:
    return Corrupt(
        f"the node's identity is damaged: {cause}",
        subject=str(path),
        remedy="restore the file from a backup",
    )


def _mismatch(path: Path, what: str, found: object, wanted: object) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.INVALID_REQUEST,
        f"the data folder belongs to {what} {found}, the configuration has {wanted}",
        subject=str(path),
        remedy=f"start the node as {what} {found}, or give it another data folder",
    )
