"""Fetch sessions (KIP-227): a consumer sends its partitions once and afterwards only changes.

Pure. A session stores the fetch position of each partition and the offsets sent last; the least
recently used session is evicted when there are too many.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import FETCH_SESSIONS_MAX
from mainstem.wire.kafka.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from mainstem.broker.api.broker import PartitionReader
    from mainstem.broker.api.security import Rights

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1

PartitionKey = tuple[bytes, str, int]  # topic id, topic name (one of them empty), partition


class FetchedPartition:
    """One partition of a session: what to fetch, and what was sent last."""

    __slots__ = (
        "epoch",
        "granted",
        "key",
        "max_bytes",
        "nearer",
        "offset",
        "reader",
        "sent_offsets",
    )

    def __init__(self, key: PartitionKey) -> None:
        self.key = key
        self.offset = 0
        self.max_bytes = 0
        self.epoch = -1
        self.reader: PartitionReader | None = None
        self.nearer = -1  # the preferred read replica
        self.sent_offsets: tuple[int, int, int] | None = (
            None  # high watermark, last stable, log start
        )
        # The rights that allowed the read, and their version: another client may use the session.
        self.granted: tuple[Rights, int] | None = None


class FetchSession:
    """The partitions of one consumer, least recently served first."""

    __slots__ = ("epoch", "id", "wanted")

    def __init__(self, session_id: int) -> None:
        self.id = session_id
        self.epoch = INITIAL_EPOCH
        self.wanted: dict[PartitionKey, FetchedPartition] = {}

    def apply(self, request: FetchRequest) -> None:
        """Add, change and remove partitions as the request specifies."""
        for topic in request.topics:
            for part in topic.partitions:
                key = (topic.topic_id, topic.topic, part.partition)
                wanted = self.wanted.get(key)
                if wanted is None:
                    wanted = self.wanted[key] = FetchedPartition(key)
                wanted.offset = part.fetch_offset
                wanted.max_bytes = part.partition_max_bytes
                wanted.epoch = part.current_leader_epoch
        for forgotten in request.forgotten_topics_data:
            for partition in forgotten.partitions:
                self.wanted.pop((forgotten.topic_id, forgotten.topic, partition), None)

    def serve_last(self, keys: Iterable[PartitionKey]) -> None:
        """Move partitions that returned data behind the others."""
        for key in keys:
            wanted = self.wanted.pop(key, None)
            if wanted is not None:
                self.wanted[key] = wanted


class FetchSessions:
    """All fetch sessions of the node."""

    def __init__(self, draw_id: Callable[[], int], limit: int = FETCH_SESSIONS_MAX) -> None:
        self._draw_id = draw_id
        self._limit = limit
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, request: FetchRequest) -> tuple[FetchSession, bool]:
        """The session of a request, and whether the response is incremental.

        Raises:
            InvalidRequest: unknown session or wrong epoch; the client starts a new session.
        """
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            session = FetchSession(NO_SESSION)
            if request.session_epoch == INITIAL_EPOCH:
                session = self._open()
            session.apply(request)
            return session, False
        found = self._sessions.pop(request.session_id, None)
        if found is None:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_FETCH_SESSION, f"no fetch session {request.session_id}"
            )
        self._sessions[found.id] = found
        if request.session_epoch != found.epoch:
            raise InvalidRequest(
                ErrorCode.INVALID_FETCH_EPOCH,
                f"fetch session {found.id} is at {found.epoch}, not {request.session_epoch}",
            )
        found.epoch = 1 if found.epoch == EPOCH_MAX else found.epoch + 1
        found.apply(request)
        return found, True

    def _open(self) -> FetchSession:
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._draw_id()
        session = FetchSession(session_id)
        session.epoch = 1
        self._sessions[session_id] = session
        if len(self._sessions) > self._limit:
            del self._sessions[next(iter(self._sessions))]
        return session
