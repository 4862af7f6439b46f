"""The broker API for share groups (KIP-932).

Members of a share group read the same partitions: each record is locked for one of them until it
is acknowledged, released or rejected. Requests and answers are plain values, re-exported here, so
that protocols import only this module. Share groups are listed and deleted with all others
(``groups``).
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
    """Share groups: members, records that are locked for them, and offsets."""

    async def heartbeat(self, request: ShareHeartbeat) -> ShareAnswer:
        """Join, keep alive or leave; the member's epoch, and its partitions if they changed."""
        ...

    def describe(self, group_id: str) -> DescribedShareGroup:
        """Describe one share group; raises ``UNKNOWN_GROUP``."""
        ...

    async def fetch(self, request: ShareFetchCall) -> ShareFetchAnswer:
        """Take acknowledgements, then lock records for the member.

        Waits as long as the request allows.

        May be cancelled while it waits; records locked for an answer that was not sent are
        available to others again.
        """
        ...

    async def acknowledge(self, request: ShareAcknowledgeCall) -> ShareAcknowledgeAnswer:
        """Take acknowledgements; returns once they are stored."""
        ...

    def disconnected(self, connection: Hashable) -> None:
        """Close the sessions of an ended connection and release their records."""
        ...

    async def offsets(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]] | None
    ) -> Sequence[ShareOffset]:
        """A group's offsets, in the given partitions or (None) in all that it has read."""
        ...

    async def alter_offsets(
        self, group_id: str, wanted: Sequence[ShareOffsetToAlter]
    ) -> Sequence[ShareOffset]:
        """Set offsets of a group without members; one result for each, in order."""
        ...

    async def delete_offsets(
        self, group_id: str, topics: Sequence[str]
    ) -> Sequence[ShareOffsetsDeleted]:
        """Delete offsets of a group without members, by topic."""
        ...
