"""The broker API for share groups (KIP-932).

Members of a share group read the same partitions: each record is locked for one of them until it
says what became of it. Requests and answers are plain values, re-exported here so that protocols
need to look no further. Share groups are listed and deleted with all others (``groups``).
"""

from collections.abc import Hashable, Sequence
from typing import Protocol

from mainstem.coordination.share.requests import (
    SESSION_FINAL,
    SESSION_FIRST,
    UNKNOWN_LAG,
    UNKNOWN_OFFSET,
    Acknowledgements,
    AckRange,
    AckType,
    AcquiredRange,
    DescribedShareGroup,
    DescribedShareMember,
    ShareAcknowledgeAnswer,
    ShareAcknowledgeCall,
    ShareAnswer,
    ShareFetchAnswer,
    ShareFetchCall,
    ShareFetched,
    ShareHeartbeat,
    ShareOffset,
    ShareOffsetsDeleted,
    ShareOffsetToAlter,
)

__all__ = [
    "SESSION_FINAL",
    "SESSION_FIRST",
    "UNKNOWN_LAG",
    "UNKNOWN_OFFSET",
    "AckRange",
    "AckType",
    "Acknowledgements",
    "AcquiredRange",
    "DescribedShareGroup",
    "DescribedShareMember",
    "ShareAcknowledgeAnswer",
    "ShareAcknowledgeCall",
    "ShareAnswer",
    "ShareFetchAnswer",
    "ShareFetchCall",
    "ShareFetched",
    "ShareGroups",
    "ShareHeartbeat",
    "ShareOffset",
    "ShareOffsetToAlter",
    "ShareOffsetsDeleted",
]


class ShareGroups(Protocol):
    """Share groups: members, records that are locked for them, and where groups stand."""

    async def heartbeat(self, request: ShareHeartbeat) -> ShareAnswer:
        """A member joins, lives or leaves; its epoch, and its partitions where they changed."""
        ...

    def describe(self, group_id: str) -> DescribedShareGroup:
        """One share group in full; ``UNKNOWN_GROUP`` without one."""
        ...

    async def fetch(self, request: ShareFetchCall) -> ShareFetchAnswer:
        """Take acknowledgements, then lock records for the member.

        Waits as long as the request allows.

        May be cancelled while it waits; what was locked for an answer that was not given is
        available to others again.
        """
        ...

    async def acknowledge(self, request: ShareAcknowledgeCall) -> ShareAcknowledgeAnswer:
        """Take acknowledgements; answered once they are safe."""
        ...

    def disconnected(self, connection: Hashable) -> None:
        """A connection ended: close its sessions and give back what they hold."""
        ...

    async def offsets(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]] | None
    ) -> Sequence[ShareOffset]:
        """Where a group stands, in the partitions asked for or (None) wherever it has read."""
        ...

    async def alter_offsets(
        self, group_id: str, wanted: Sequence[ShareOffsetToAlter]
    ) -> Sequence[ShareOffset]:
        """Let a group without members stand elsewhere; one answer for each, in order."""
        ...

    async def delete_offsets(
        self, group_id: str, topics: Sequence[str]
    ) -> Sequence[ShareOffsetsDeleted]:
        """Forget where a group without members stands in topics."""
        ...
