"""Partitions that come and go, counted against a client's ``controller_mutation_rate`` (KIP-599).

    with mutations(call.peer, 12, strict=call.version >= 6):
        await topics.create(...)

What was refused counts nothing. Who was too fast before is refused if the version of the request
tells that its client knows this answer; others have their way and wait for it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.protocols.kafka.call import Peer
from mainstem.security.quotas import MUTATIONS


@contextmanager
def mutations(peer: Peer, partitions: int, *, strict: bool) -> Iterator[None]:
    """Count partitions while they come or go.

    Raises:
        Unavailable: the client is ``strict`` and has used more than it may.
    """
    if strict and partitions and peer.charge(MUTATIONS, 0):
        raise Unavailable(
            ErrorCode.THROTTLED,
            f"partitions come and go faster than {MUTATIONS} allows",
            remedy="wait for the time that the answer names",
        )
    peer.count(MUTATIONS, partitions)
    try:
        yield
    except MainstemError:
        peer.count(MUTATIONS, -partitions)
        raise
    if partitions:
        peer.charge(MUTATIONS, 0)
