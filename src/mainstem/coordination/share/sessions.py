"""Share sessions: which partitions a member reads from this node, and that no request is lost.

A session begins with epoch 0; every request says the next number, so that one that was lost, or
comes twice, is noticed and the member begins anew. Epoch -1 ends it. Pure.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mainstem.coordination.share.requests import (
    SESSION_FINAL,
    SESSION_FIRST,
    ShareAcknowledgeCall,
    ShareFetchCall,
)
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.ids import StreamId

_EPOCH_MAX: Final = 2**31 - 1

ShareSessionKey = tuple[str, str]  # group, member
SessionPartition = tuple[str, StreamId]


@dataclass(slots=True)
class ShareSession:
    """What one member reads here; partitions that were served last come last."""

    group_id: str
    member_id: str
    connection: Hashable
    epoch: int = 1
    streams: dict[StreamId, None] = field(default_factory=dict)

    def serve_last(self, served: Iterable[StreamId]) -> None:
        """Let others come first the next time."""
        for stream in served:
            if stream in self.streams:
                del self.streams[stream]
                self.streams[stream] = None


class ShareSessions:
    """The sessions of one node.

    Args:
        sessions_max: more are refused.
        partitions_max: of one session; more are refused.
    """

    def __init__(self, sessions_max: int, partitions_max: int) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._sessions: dict[ShareSessionKey, ShareSession] = {}
        self._readers: Counter[SessionPartition] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        """The session of a member, if it has one."""
        return self._sessions.get((group_id, member_id))

    def is_read(self, shared: SessionPartition) -> bool:
        """Whether some session reads that partition for that group."""
        return self._readers[shared] > 0

    def fetching(self, request: ShareFetchCall) -> ShareSession:
        """The session of a fetch, opened or brought up to date.

        Raises:
            MainstemError: the member has to begin anew, or later.
        """
        if request.session_epoch == SESSION_FIRST:
            if any(request.acknowledgements.values()):
                raise InvalidRequest(
                    ErrorCode.INVALID_REQUEST, "a session does not begin with acknowledgements"
                )
            self.close(request.group_id, request.member_id)
            if len(self._sessions) >= self._sessions_max:
                raise Unavailable(
                    ErrorCode.SHARE_SESSION_LIMIT, f"{len(self._sessions)} sessions are open"
                )
            session = ShareSession(request.group_id, request.member_id, request.connection)
            self._change(session, request.named, ())
            self._sessions[request.group_id, request.member_id] = session
            return session
        session = self._known(request)
        if request.session_epoch != SESSION_FINAL:
            self._change(session, request.named, request.forgotten)
        return session

    def acknowledging(self, request: ShareAcknowledgeCall) -> ShareSession:
        """The session of an acknowledgement.

        Raises:
            MainstemError: there is none, or the epoch is another.
        """
        if request.session_epoch == SESSION_FIRST:
            raise InvalidRequest(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "acknowledging opens no session"
            )
        return self._known(request)

    def close(self, group_id: str, member_id: str) -> ShareSession | None:
        """End a session; None without one."""
        session = self._sessions.pop((group_id, member_id), None)
        if session is not None:
            for stream in session.streams:
                self._count((group_id, stream), -1)
        return session

    def of_connection(self, connection: Hashable) -> Sequence[ShareSession]:
        """Every session of a connection."""
        return [each for each in self._sessions.values() if each.connection == connection]

    def _known(self, request: ShareFetchCall | ShareAcknowledgeCall) -> ShareSession:
        session = self._sessions.get((request.group_id, request.member_id))
        if session is None:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_SHARE_SESSION,
                f"no session of member {request.member_id!r}",
                subject=request.group_id,
            )
        if request.session_epoch == SESSION_FINAL:
            return session
        if request.session_epoch != session.epoch:
            raise InvalidRequest(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"epoch {request.session_epoch} where {session.epoch} is next",
                subject=request.group_id,
            )
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.connection = request.connection
        return session

    def _change(
        self, session: ShareSession, named: Iterable[StreamId], forgotten: Iterable[StreamId]
    ) -> None:
        for stream in forgotten:
            if stream in session.streams:
                del session.streams[stream]
                self._count((session.group_id, stream), -1)
        for stream in named:
            if stream not in session.streams and stream not in forgotten:
                if len(session.streams) >= self._partitions_max:
                    raise InvalidRequest(
                        ErrorCode.LIMIT_REACHED, f"{len(session.streams)} partitions in a session"
                    )
                session.streams[stream] = None
                self._count((session.group_id, stream), 1)

    def _count(self, shared: SessionPartition, by: int) -> None:
        self._readers[shared] += by
        if not self._readers[shared]:
            del self._readers[shared]
