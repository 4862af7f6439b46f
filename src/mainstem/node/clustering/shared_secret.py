"""The secret that all nodes of a cluster share: read, or created by the first node."""

import os
from base64 import b64encode
from pathlib import Path

from mainstem.cluster.secrets import checked_secrets
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.placement.persistence.identity_storage import write_atomically

NAME = "cluster.secret"
SECRET_BYTES = 32


def cluster_secrets(data: Path, file: str | None, *, may_make: bool) -> tuple[bytes, ...]:
    """The secrets, the current one first.

    Args:
        data: the node's data folder.
        file: where they are, if not in the data folder.
        may_make: whether this node is the first of its cluster and creates the secret.

    Raises:
        InvalidRequest: there is none, or one is too short.
    """
    path = Path(file) if file is not None else data / NAME
    if not path.exists():
        if file is not None or not may_make:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                "a node needs the cluster's secret to join",
                subject=str(path),
                remedy=f"copy {NAME} from the data folder of the first node to there",
            )
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, b64encode(os.urandom(SECRET_BYTES)) + b"\n")
    lines = [line.strip() for line in path.read_bytes().splitlines()]
    return checked_secrets([line for line in lines if line])
