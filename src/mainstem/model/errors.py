"""Every error of Mainstem: a code, a cause, the object it concerns and what helps.

Four families: *invalid request* (change the request), *fenced* (a newer epoch took over),
*unavailable* (try again), *corrupt* (damaged bytes). Packages raise these; each protocol owns one
table ``ErrorCode -> wire code`` that a test keeps complete.
"""

from enum import Enum, auto
from logging import Logger
from typing import Any, Self

from mainstem.model.release import RELEASE


class ErrorCode(Enum):
    """What went wrong, as one of our error codes."""

    # invalid request
    INVALID_REQUEST = auto()
    UNSUPPORTED_VERSION = auto()
    INVALID_TOPIC_NAME = auto()
    UNKNOWN_TOPIC = auto()
    UNKNOWN_TOPIC_ID = auto()
    INCONSISTENT_TOPIC_ID = auto()
    TOPIC_EXISTS = auto()
    INVALID_PARTITIONS = auto()
    INVALID_REPLICATION_FACTOR = auto()
    INVALID_REPLICA_ASSIGNMENT = auto()
    INVALID_CONFIG = auto()
    POLICY_VIOLATION = auto()
    OFFSET_OUT_OF_RANGE = auto()
    INVALID_RECORD = auto()
    RECORD_TOO_LARGE = auto()
    UNSUPPORTED_COMPRESSION = auto()
    UNSUPPORTED_RECORD_FORMAT = auto()
    INVALID_TIMESTAMP = auto()
    INVALID_ACKS = auto()
    OFFSET_METADATA_TOO_LARGE = auto()
    INVALID_GROUP = auto()
    UNKNOWN_GROUP = auto()
    GROUP_NOT_EMPTY = auto()
    GROUP_SUBSCRIBED = auto()
    GROUP_FULL = auto()
    UNSUPPORTED_ASSIGNOR = auto()
    INCONSISTENT_PROTOCOL = auto()
    INVALID_SESSION_TIMEOUT = auto()
    UNKNOWN_FETCH_SESSION = auto()
    INVALID_FETCH_EPOCH = auto()
    UNKNOWN_SHARE_SESSION = auto()
    INVALID_SHARE_SESSION_EPOCH = auto()
    SHARE_SESSION_LIMIT = auto()
    INVALID_RECORD_STATE = auto()
    OUT_OF_ORDER_SEQUENCE = auto()
    DUPLICATE_SEQUENCE = auto()
    UNKNOWN_PRODUCER = auto()
    INVALID_TXN_STATE = auto()
    INVALID_TXN_TIMEOUT = auto()
    UNKNOWN_TRANSACTION = auto()
    TRANSACTION_ABORTABLE = auto()
    INVALID_PRODUCER_MAPPING = auto()
    NOT_AUTHORIZED = auto()
    UNKNOWN_RESOURCE = auto()
    INVALID_DIRECTORY = auto()
    INVALID_PATTERN = auto()
    TRANSACTIONAL_ID_NOT_AUTHORIZED = auto()
    GROUP_NOT_AUTHORIZED = auto()
    CLUSTER_NOT_AUTHORIZED = auto()
    TOKEN_NOT_AUTHORIZED = auto()
    AUTHENTICATION_FAILED = auto()
    UNSUPPORTED_MECHANISM = auto()
    ILLEGAL_LOGIN_STATE = auto()
    SECURITY_DISABLED = auto()
    UNACCEPTABLE_CREDENTIAL = auto()
    DUPLICATE_RESOURCE = auto()
    TOKENS_DISABLED = auto()
    UNKNOWN_TOKEN = auto()
    TOKEN_OWNER_MISMATCH = auto()
    TOKEN_REQUEST_REFUSED = auto()
    TOKEN_EXPIRED = auto()
    INVALID_PRINCIPAL_TYPE = auto()
    ELECTION_NOT_NEEDED = auto()
    NO_REASSIGNMENT = auto()
    INVALID_FEATURE_LEVEL = auto()
    UNKNOWN_NODE = auto()
    UNKNOWN_SUBSCRIPTION = auto()
    TELEMETRY_TOO_LARGE = auto()
    INVALID_ARGUMENT = auto()
    INVALID_BINDING = auto()
    RESERVED_NAME = auto()
    UNKNOWN_QUEUE = auto()
    UNKNOWN_EXCHANGE = auto()
    DECLARATION_DIFFERS = auto()
    RESOURCE_LOCKED = auto()
    RESOURCE_IN_USE = auto()
    QUEUE_NOT_EMPTY = auto()
    UNKNOWN_CONSUMER = auto()
    UNKNOWN_DELIVERY = auto()
    LIMIT_REACHED = auto()
    # fenced
    FENCED_EPOCH = auto()
    UNKNOWN_EPOCH = auto()
    FENCED_PRODUCER = auto()
    FENCED_COORDINATOR = auto()
    FENCED_MEMBER = auto()
    FENCED_MEMBER_EPOCH = auto()
    STALE_MEMBER_EPOCH = auto()
    UNRELEASED_INSTANCE = auto()
    UNKNOWN_MEMBER = auto()
    ILLEGAL_GENERATION = auto()
    MEMBER_ID_REQUIRED = auto()
    RANGE_SEALED = auto()
    # unavailable: a retry helps
    NOT_WRITER = auto()
    WRITER_UNAVAILABLE = auto()
    NOT_ENOUGH_REPLICAS = auto()
    NOT_COORDINATOR = auto()
    COORDINATOR_LOADING = auto()
    COORDINATOR_UNAVAILABLE = auto()
    REBALANCE_IN_PROGRESS = auto()
    CONCURRENT_TRANSACTIONS = auto()
    UNSTABLE_OFFSET = auto()
    TIMED_OUT = auto()
    THROTTLED = auto()
    DISK_FULL = auto()
    STORAGE_FAILED = auto()
    SHUTTING_DOWN = auto()
    OVERLOADED = auto()
    # corrupt
    CORRUPT = auto()
    INTERNAL = auto()


RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_WRITER,
        ErrorCode.WRITER_UNAVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOADING,
        ErrorCode.COORDINATOR_UNAVAILABLE,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.SHARE_SESSION_LIMIT,
        ErrorCode.UNSTABLE_OFFSET,
        ErrorCode.TIMED_OUT,
        ErrorCode.THROTTLED,
        ErrorCode.DISK_FULL,
        ErrorCode.STORAGE_FAILED,
        ErrorCode.SHUTTING_DOWN,
        ErrorCode.OVERLOADED,
    }
)


class MainstemError(Exception):
    """Base class of all errors of Mainstem.

    Args:
        code: what happened.
        cause: one sentence that names the values involved.
        subject: the object concerned (a topic, a group, a file).
        remedy: what the caller can do about it.
    """

    def __init__(
        self, code: ErrorCode, cause: str = "", *, subject: str = "", remedy: str = ""
    ) -> None:
        super().__init__(code, cause, subject, remedy)
        self.code = code
        self.cause = cause
        self.subject = subject
        self.remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:
        # By default unpickling calls the constructor with ``args``, whose signature differs: an
        # error raised in a worker process would end the worker.
        return _made_anew, (type(self), self.args), self.__dict__

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in RETRIABLE

    def __str__(self) -> str:
        text = self.code.name
        if self.subject:
            text += f" [{self.subject}]"
        if self.cause:
            text += f": {self.cause}"
        if self.remedy:
            text += f" ({self.remedy})"
        return text


def _made_anew(kind: type[MainstemError], args: tuple[Any, ...]) -> MainstemError:
    return kind.__new__(kind, *args)


class InvalidRequest(MainstemError):
    """The request cannot succeed unless it is changed."""


class InvalidRecords(InvalidRequest):
    """Records of a batch violate rules of their topic, and the whole batch is refused.

    ``records`` lists the first of them: the index in the batch, and what is wrong.
    """

    def __init__(
        self, code: ErrorCode, cause: str, records: tuple[tuple[int, str], ...], *, remedy: str
    ) -> None:
        super().__init__(code, cause, remedy=remedy)
        self.records = records


class Fenced(MainstemError):
    """A newer epoch has taken over."""


class Unavailable(MainstemError):
    """Not now; a retry may succeed."""


# Refusals of this node's own storage that end without a restart.
STORAGE_RECOVERS = frozenset({ErrorCode.DISK_FULL, ErrorCode.OVERLOADED})


class StorageMayRefuse:
    """A step that may fail on a full disk or without free descriptors: logs it and continues.

        with StorageMayRefuse(_log, "the next start scans again") as storage:
            self.write_checkpoint()
        is_noted = storage.refusal is None

    Args:
        log: the logger of the warning.
        consequence: the effect of the refusal, logged after it.
    """

    def __init__(self, log: Logger, consequence: str) -> None:
        self._log = log
        self._consequence = consequence
        self.refusal: Unavailable | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, Unavailable) or error.code not in STORAGE_RECOVERS:
            return False
        self.refusal = error
        self._log.warning("%s: %s", self._consequence, error)
        return True


class Corrupt(MainstemError):
    """Damaged bytes from disk or network."""

    def __init__(self, cause: str, *, subject: str = "", remedy: str = "") -> None:
        super().__init__(ErrorCode.CORRUPT, cause, subject=subject, remedy=remedy)


class UnknownVersion(MainstemError):
    """Intact data of a version that this release does not read.

    It is not ``Corrupt``: damage is truncated, rebuilt or copied again; this must not be changed.

    Args:
        what: the kind of file, record or fact.
        found: its version.
        known: the versions that this release reads.
        subject: the file, or where else it was found.
    """

    def __init__(self, what: str, found: object, known: object, *, subject: str) -> None:
        super().__init__(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{what} of version {found}, and mainstem {RELEASE} reads version {known}",
            subject=subject,
            remedy="start the release that wrote it, or a later one; nothing was changed",
        )
