"""Error responses over HTTP: the table from our error codes to statuses, and the body.

    {"code": "UNKNOWN_TOPIC", "cause": "…", "subject": "orders", "remedy": "…"}

A test keeps the table complete. Errors of HTTP itself (a wrong method, a wrong media type, a body
that is too long) are an ``HttpError``, which carries its own status.
"""

from collections.abc import Mapping

from msgspec import Struct

from mainstem.model.errors import ErrorCode, MainstemError

RETRY_AFTER_S = 1

STATUSES: dict[ErrorCode, int] = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.UNSUPPORTED_VERSION: 400,
    ErrorCode.INVALID_TOPIC_NAME: 400,
    ErrorCode.UNKNOWN_TOPIC: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.INCONSISTENT_TOPIC_ID: 409,
    ErrorCode.TOPIC_EXISTS: 409,
    ErrorCode.INVALID_PARTITIONS: 400,
    ErrorCode.INVALID_REPLICATION_FACTOR: 400,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: 400,
    ErrorCode.INVALID_CONFIG: 400,
    ErrorCode.POLICY_VIOLATION: 403,
    ErrorCode.OFFSET_OUT_OF_RANGE: 416,
    ErrorCode.INVALID_RECORD: 400,
    ErrorCode.RECORD_TOO_LARGE: 413,
    ErrorCode.UNSUPPORTED_COMPRESSION: 400,
    ErrorCode.UNSUPPORTED_RECORD_FORMAT: 400,
    ErrorCode.INVALID_TIMESTAMP: 400,
    ErrorCode.INVALID_ACKS: 400,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: 400,
    ErrorCode.INVALID_GROUP: 400,
    ErrorCode.UNKNOWN_GROUP: 404,
    ErrorCode.GROUP_NOT_EMPTY: 409,
    ErrorCode.GROUP_SUBSCRIBED: 409,
    ErrorCode.GROUP_FULL: 409,
    ErrorCode.UNSUPPORTED_ASSIGNOR: 400,
    ErrorCode.INCONSISTENT_PROTOCOL: 409,
    ErrorCode.INVALID_SESSION_TIMEOUT: 400,
    ErrorCode.UNKNOWN_FETCH_SESSION: 404,
    ErrorCode.INVALID_FETCH_EPOCH: 400,
    ErrorCode.UNKNOWN_SHARE_SESSION: 404,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: 400,
    ErrorCode.SHARE_SESSION_LIMIT: 503,
    ErrorCode.INVALID_RECORD_STATE: 409,
    ErrorCode.OUT_OF_ORDER_SEQUENCE: 409,
    ErrorCode.DUPLICATE_SEQUENCE: 409,
    ErrorCode.UNKNOWN_PRODUCER: 409,
    ErrorCode.NOT_AUTHORIZED: 403,
    ErrorCode.UNKNOWN_RESOURCE: 404,
    ErrorCode.INVALID_DIRECTORY: 400,
    ErrorCode.INVALID_PATTERN: 400,
    ErrorCode.TRANSACTIONAL_ID_NOT_AUTHORIZED: 403,
    ErrorCode.GROUP_NOT_AUTHORIZED: 403,
    ErrorCode.CLUSTER_NOT_AUTHORIZED: 403,
    ErrorCode.TOKEN_NOT_AUTHORIZED: 403,
    ErrorCode.AUTHENTICATION_FAILED: 401,
    ErrorCode.UNSUPPORTED_MECHANISM: 401,
    ErrorCode.ILLEGAL_LOGIN_STATE: 400,
    ErrorCode.SECURITY_DISABLED: 400,
    ErrorCode.UNACCEPTABLE_CREDENTIAL: 400,
    ErrorCode.DUPLICATE_RESOURCE: 409,
    ErrorCode.TOKENS_DISABLED: 400,
    ErrorCode.UNKNOWN_TOKEN: 404,
    ErrorCode.TOKEN_OWNER_MISMATCH: 403,
    ErrorCode.TOKEN_REQUEST_REFUSED: 403,
    ErrorCode.TOKEN_EXPIRED: 401,
    ErrorCode.INVALID_PRINCIPAL_TYPE: 400,
    ErrorCode.ELECTION_NOT_NEEDED: 409,
    ErrorCode.NO_REASSIGNMENT: 409,
    ErrorCode.INVALID_FEATURE_LEVEL: 400,
    ErrorCode.UNKNOWN_NODE: 404,
    ErrorCode.UNKNOWN_SUBSCRIPTION: 404,
    ErrorCode.TELEMETRY_TOO_LARGE: 413,
    ErrorCode.INVALID_ARGUMENT: 400,
    ErrorCode.INVALID_BINDING: 400,
    ErrorCode.RESERVED_NAME: 403,
    ErrorCode.UNKNOWN_QUEUE: 404,
    ErrorCode.UNKNOWN_EXCHANGE: 404,
    ErrorCode.DECLARATION_DIFFERS: 409,
    ErrorCode.RESOURCE_LOCKED: 409,
    ErrorCode.RESOURCE_IN_USE: 409,
    ErrorCode.QUEUE_NOT_EMPTY: 409,
    ErrorCode.UNKNOWN_CONSUMER: 404,
    ErrorCode.UNKNOWN_DELIVERY: 404,
    ErrorCode.LIMIT_REACHED: 409,
    ErrorCode.FENCED_EPOCH: 409,
    ErrorCode.UNKNOWN_EPOCH: 409,
    ErrorCode.FENCED_PRODUCER: 409,
    ErrorCode.FENCED_MEMBER: 409,
    ErrorCode.FENCED_COORDINATOR: 409,
    ErrorCode.FENCED_MEMBER_EPOCH: 409,
    ErrorCode.STALE_MEMBER_EPOCH: 409,
    ErrorCode.UNRELEASED_INSTANCE: 409,
    ErrorCode.UNKNOWN_MEMBER: 404,
    ErrorCode.ILLEGAL_GENERATION: 409,
    ErrorCode.MEMBER_ID_REQUIRED: 400,
    ErrorCode.RANGE_SEALED: 503,
    ErrorCode.NOT_WRITER: 503,
    ErrorCode.WRITER_UNAVAILABLE: 503,
    ErrorCode.NOT_COORDINATOR: 503,
    ErrorCode.COORDINATOR_LOADING: 503,
    ErrorCode.COORDINATOR_UNAVAILABLE: 503,
    ErrorCode.REBALANCE_IN_PROGRESS: 503,
    ErrorCode.CONCURRENT_TRANSACTIONS: 503,
    ErrorCode.NOT_ENOUGH_REPLICAS: 503,
    ErrorCode.UNSTABLE_OFFSET: 503,
    ErrorCode.INVALID_TXN_STATE: 409,
    ErrorCode.INVALID_TXN_TIMEOUT: 400,
    ErrorCode.UNKNOWN_TRANSACTION: 404,
    ErrorCode.TRANSACTION_ABORTABLE: 409,
    ErrorCode.INVALID_PRODUCER_MAPPING: 409,
    ErrorCode.TIMED_OUT: 504,
    ErrorCode.THROTTLED: 429,
    ErrorCode.DISK_FULL: 507,
    ErrorCode.STORAGE_FAILED: 503,
    ErrorCode.SHUTTING_DOWN: 503,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.CORRUPT: 500,
    ErrorCode.INTERNAL: 500,
}

# A client may send the same request again after a while.
_WORTH_A_RETRY = frozenset({408, 429, 503, 504, 507})


class Problem(Struct, frozen=True, omit_defaults=False):
    """Why a request was refused: the code for programs, the rest for people."""

    code: str
    cause: str
    subject: str = ""
    remedy: str = ""


class HttpError(Exception):
    """An error of HTTP itself, without an error code of the broker."""

    def __init__(
        self,
        status: int,
        problem: Problem,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, problem)
        self.status = status
        self.problem = problem
        self.headers = dict(headers or {})


def bad_request(cause: str, *, subject: str = "", remedy: str = "") -> HttpError:
    """A 400: the request is invalid."""
    return HttpError(400, Problem(ErrorCode.INVALID_REQUEST.name, cause, subject, remedy))


def problem_of(error: MainstemError) -> tuple[int, Problem]:
    """Status and body for one of our errors."""
    body = Problem(error.code.name, error.cause, error.subject, error.remedy)
    return STATUSES[error.code], body


def retry_headers(status: int) -> dict[str, str]:
    """The Retry-After header, for statuses after which a client may retry."""
    return {"retry-after": str(RETRY_AFTER_S)} if status in _WORTH_A_RETRY else {}
