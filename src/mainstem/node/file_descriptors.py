"""How the descriptors of a process are divided: its own, other nodes', files of the log, clients.

    limit = own + peers + files + clients

Clients get the rest: a node works without a client, but not without a file.
"""

import logging
import resource
from typing import Final

from msgspec import Struct

from mainstem.cluster.peers.service import UNAUTHENTICATED_MAX
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import DESCRIPTORS_MIN, FILES_OPEN_MAX, PEERS_MAX
from mainstem.node.clustering.membership import is_clustered
from mainstem.node.config.settings import Config
from mainstem.protocols.rest.transport import CONNECTIONS_MAX as HTTP_CONNECTIONS_MAX

# Listening sockets, the catalogue, the Raft log, audit files, workers and threads.
OWN: Final = 96
# Two connections per other node, one each way; unauthenticated ones have a limit of their own.
PEERS: Final = 2 * PEERS_MAX + UNAUTHENTICATED_MAX

log = logging.getLogger(__name__)


class Descriptors(Struct, frozen=True, kw_only=True):
    """How one process's descriptors are divided."""

    limit: int
    files: int
    clients: int

    @property
    def files_open_max(self) -> int:
        """Segments that stay open; the rest is for files that are open for a moment."""
        return self.files * 3 // 4


def divided(limit: int, config: Config) -> Descriptors:
    """Divide a limit.

    Raises:
        InvalidRequest: it is too low for a node.
    """
    if limit < DESCRIPTORS_MIN:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"{limit} open files are allowed, a node needs {DESCRIPTORS_MIN}",
            subject="ulimit -n",
            remedy="raise the limit of open files",
        )
    # With a very low limit, peers get fewer connections as well.
    peers = min(PEERS, limit // 4) if is_clustered(config) else 0
    left = limit - OWN - peers
    files = min(FILES_OPEN_MAX, left // 3)
    return Descriptors(limit=limit, files=files, clients=left - files)


def wanted(config: Config) -> int:
    """The number of descriptors that the configured limits need at most."""
    twice = (config.kafka, config.amqp, config.native)
    clients = 2 * sum(section.max_connections for section in twice)
    clients += 2 * config.mqtt.max_connections + 2 * HTTP_CONNECTIONS_MAX
    return OWN + PEERS + FILES_OPEN_MAX + 2 * clients


def granted(config: Config) -> int:
    """The current limit of the process, as far as it is needed."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted(config)
    return most if soft == resource.RLIM_INFINITY else min(soft, most)


def raise_limit(config: Config) -> None:
    """Raise the process's own limit as far as it is needed and allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted(config)
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < most:
        parts = divided(allowed, config)
        log.info(
            "%d open files are allowed (ulimit -n): %d for the log, %d for clients",
            allowed,
            parts.files,
            parts.clients,
        )
