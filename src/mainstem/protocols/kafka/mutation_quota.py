"""Charges created and deleted partitions to ``controller_mutation_rate`` (KIP-599).

    with mutations(call.peer, 12, strict=call.version >= 6):
        await topics.create(...)

Refused changes are not charged. A client that has exceeded the quota is refused if the version of
its request supports that error; older clients are served and throttled.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.protocols.kafka.call import Peer
from mainstem.security.quotas import MUTATIONS


@contextmanager
def mutations(peer: Peer, partitions: int, *, strict: bool) -> Iterator[None]:
    """Charge partitions that are created or deleted.

    Raises:
        Unavailable: the client is ``strict`` and has exceeded the quota.
    """
    if strict and partitions and peer.charge(MUTATIONS, 0):
        raise Unavailable(
            ErrorCode.THROTTLED,
            f"partitions are created or deleted faster than {MUTATIONS} allows",
            remedy="wait for throttle_time_ms of the response",
        )
    peer.count(MUTATIONS, partitions)
    try:
        yield
    except MainstemError:
        peer.count(MUTATIONS, -partitions)
        raise
    if partitions:
        peer.charge(MUTATIONS, 0)
