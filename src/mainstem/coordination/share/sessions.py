"""Share sessions: which partitions a member reads from this node, with detection of lost requests.

A session starts with epoch 0; every request carries the next number, so that a lost or duplicate
request is detected and the member opens a new session. Epoch -1 closes it. Pure.
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
    """The partitions that one member reads from this node; the last served come last."""

    group_id: str
    member_id: str
    connection: Hashable
    epoch: int = 1
    streams: dict[StreamId, None] = field(default_factory=dict)

    def serve_last(self, served: Iterable[StreamId]) -> None:
        """Move a partition to the end, so that others are served first next time."""
        for stream in served:
            if stream in self.streams:
                del self.streams[stream]
                self.streams[stream] = None


class ShareSessions:
    """The sessions of one node.

    Args:
        sessions_max: limit of open sessions.
        partitions_max: limit of partitions in one session.
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
        """Whether any session reads that partition for that group."""
        return self._readers[shared] > 0

    def fetching(self, request: ShareFetchCall) -> ShareSession:
        """The session of a fetch, opened or updated.

        Raises:
            MainstemError: the member has to open a new session, or retry later.
        """
        if request.session_epoch == SESSION_FIRST:
            if any(request.acknowledgements.values()):
                raise InvalidRequest(
                    ErrorCode.INVALID_REQUEST,
                    "the first request of a session must not contain acknowledgements",
                )
            self.close(request.group_id, request.member_id)
            if len(self._sessions) >= self._sessions_max:
                raise Unavailable(
                    ErrorCode.SHARE_SESSION_LIMIT,
                    f"the limit of {self._sessions_max} share sessions is reached",
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
            MainstemError: there is no session, or the epoch does not match.
        """
        if request.session_epoch == SESSION_FIRST:
            raise InvalidRequest(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "an acknowledgement cannot open a session"
            )
        return self._known(request)

    def close(self, group_id: str, member_id: str) -> ShareSession | None:
        """Close a session; returns None if there is none."""
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
                f"session epoch {request.session_epoch}, expected {session.epoch}",
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
                        ErrorCode.LIMIT_REACHED,
                        f"the limit of {self._partitions_max} partitions is reached",
                    )
                session.streams[stream] = None
                self._count((session.group_id, stream), 1)

    def _count(self, shared: SessionPartition, by: int) -> None:
        self._readers[shared] += by
        if not self._readers[shared]:
            del self._readers[shared]
