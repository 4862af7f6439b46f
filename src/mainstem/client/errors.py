"""Kafka's error numbers as Mainstem errors, so that callers see one kind of error."""

import ssl
from typing import Final

from mainstem.model.errors import (
    RETRIABLE,
    Corrupt,
    ErrorCode,
    Fenced,
    InvalidRequest,
    MainstemError,
    Unavailable,
)

NONE: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
COORDINATOR_LOAD_IN_PROGRESS: Final = 14
NOT_COORDINATOR: Final = 16
ILLEGAL_GENERATION: Final = 22
UNKNOWN_MEMBER_ID: Final = 25
REBALANCE_IN_PROGRESS: Final = 27
UNSUPPORTED_VERSION: Final = 35
OUT_OF_ORDER_SEQUENCE: Final = 45
DUPLICATE_SEQUENCE: Final = 46
INVALID_PRODUCER_EPOCH: Final = 47
UNKNOWN_PRODUCER_ID: Final = 59
GROUP_ID_NOT_FOUND: Final = 69
MEMBER_ID_REQUIRED: Final = 79
FENCED_INSTANCE_ID: Final = 82

# Kafka's number to its name and to our error code.
TABLE: Final[dict[int, tuple[str, ErrorCode]]] = {
    -1: ("UNKNOWN_SERVER_ERROR", ErrorCode.INTERNAL),
    1: ("OFFSET_OUT_OF_RANGE", ErrorCode.OFFSET_OUT_OF_RANGE),
    2: ("CORRUPT_MESSAGE", ErrorCode.CORRUPT),
    3: ("UNKNOWN_TOPIC_OR_PARTITION", ErrorCode.UNKNOWN_TOPIC),
    4: ("INVALID_FETCH_SIZE", ErrorCode.INVALID_REQUEST),
    5: ("LEADER_NOT_AVAILABLE", ErrorCode.WRITER_UNAVAILABLE),
    6: ("NOT_LEADER_OR_FOLLOWER", ErrorCode.NOT_WRITER),
    7: ("REQUEST_TIMED_OUT", ErrorCode.TIMED_OUT),
    8: ("BROKER_NOT_AVAILABLE", ErrorCode.WRITER_UNAVAILABLE),
    9: ("REPLICA_NOT_AVAILABLE", ErrorCode.WRITER_UNAVAILABLE),
    10: ("MESSAGE_TOO_LARGE", ErrorCode.RECORD_TOO_LARGE),
    12: ("OFFSET_METADATA_TOO_LARGE", ErrorCode.OFFSET_METADATA_TOO_LARGE),
    13: ("NETWORK_EXCEPTION", ErrorCode.WRITER_UNAVAILABLE),
    14: ("COORDINATOR_LOAD_IN_PROGRESS", ErrorCode.COORDINATOR_LOADING),
    15: ("COORDINATOR_NOT_AVAILABLE", ErrorCode.COORDINATOR_UNAVAILABLE),
    16: ("NOT_COORDINATOR", ErrorCode.NOT_COORDINATOR),
    17: ("INVALID_TOPIC_EXCEPTION", ErrorCode.INVALID_TOPIC_NAME),
    18: ("RECORD_LIST_TOO_LARGE", ErrorCode.RECORD_TOO_LARGE),
    19: ("NOT_ENOUGH_REPLICAS", ErrorCode.NOT_ENOUGH_REPLICAS),
    20: ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", ErrorCode.TIMED_OUT),
    21: ("INVALID_REQUIRED_ACKS", ErrorCode.INVALID_ACKS),
    22: ("ILLEGAL_GENERATION", ErrorCode.ILLEGAL_GENERATION),
    23: ("INCONSISTENT_GROUP_PROTOCOL", ErrorCode.INCONSISTENT_PROTOCOL),
    24: ("INVALID_GROUP_ID", ErrorCode.INVALID_GROUP),
    25: ("UNKNOWN_MEMBER_ID", ErrorCode.UNKNOWN_MEMBER),
    26: ("INVALID_SESSION_TIMEOUT", ErrorCode.INVALID_SESSION_TIMEOUT),
    27: ("REBALANCE_IN_PROGRESS", ErrorCode.REBALANCE_IN_PROGRESS),
    28: ("INVALID_COMMIT_OFFSET_SIZE", ErrorCode.OFFSET_METADATA_TOO_LARGE),
    29: ("TOPIC_AUTHORIZATION_FAILED", ErrorCode.NOT_AUTHORIZED),
    30: ("GROUP_AUTHORIZATION_FAILED", ErrorCode.GROUP_NOT_AUTHORIZED),
    31: ("CLUSTER_AUTHORIZATION_FAILED", ErrorCode.CLUSTER_NOT_AUTHORIZED),
    32: ("INVALID_TIMESTAMP", ErrorCode.INVALID_TIMESTAMP),
    33: ("UNSUPPORTED_SASL_MECHANISM", ErrorCode.UNSUPPORTED_MECHANISM),
    34: ("ILLEGAL_SASL_STATE", ErrorCode.ILLEGAL_LOGIN_STATE),
    35: ("UNSUPPORTED_VERSION", ErrorCode.UNSUPPORTED_VERSION),
    36: ("TOPIC_ALREADY_EXISTS", ErrorCode.TOPIC_EXISTS),
    37: ("INVALID_PARTITIONS", ErrorCode.INVALID_PARTITIONS),
    38: ("INVALID_REPLICATION_FACTOR", ErrorCode.INVALID_REPLICATION_FACTOR),
    39: ("INVALID_REPLICA_ASSIGNMENT", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    40: ("INVALID_CONFIG", ErrorCode.INVALID_CONFIG),
    41: ("NOT_CONTROLLER", ErrorCode.NOT_WRITER),
    42: ("INVALID_REQUEST", ErrorCode.INVALID_REQUEST),
    43: ("UNSUPPORTED_FOR_MESSAGE_FORMAT", ErrorCode.UNSUPPORTED_RECORD_FORMAT),
    44: ("POLICY_VIOLATION", ErrorCode.POLICY_VIOLATION),
    45: ("OUT_OF_ORDER_SEQUENCE_NUMBER", ErrorCode.OUT_OF_ORDER_SEQUENCE),
    46: ("DUPLICATE_SEQUENCE_NUMBER", ErrorCode.DUPLICATE_SEQUENCE),
    47: ("INVALID_PRODUCER_EPOCH", ErrorCode.FENCED_PRODUCER),
    48: ("INVALID_TXN_STATE", ErrorCode.INVALID_TXN_STATE),
    49: ("INVALID_PRODUCER_ID_MAPPING", ErrorCode.INVALID_PRODUCER_MAPPING),
    50: ("INVALID_TRANSACTION_TIMEOUT", ErrorCode.INVALID_TXN_TIMEOUT),
    51: ("CONCURRENT_TRANSACTIONS", ErrorCode.CONCURRENT_TRANSACTIONS),
    52: ("TRANSACTION_COORDINATOR_FENCED", ErrorCode.FENCED_COORDINATOR),
    53: ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", ErrorCode.TRANSACTIONAL_ID_NOT_AUTHORIZED),
    54: ("SECURITY_DISABLED", ErrorCode.SECURITY_DISABLED),
    56: ("KAFKA_STORAGE_ERROR", ErrorCode.STORAGE_FAILED),
    57: ("LOG_DIR_NOT_FOUND", ErrorCode.INVALID_DIRECTORY),
    58: ("SASL_AUTHENTICATION_FAILED", ErrorCode.AUTHENTICATION_FAILED),
    59: ("UNKNOWN_PRODUCER_ID", ErrorCode.UNKNOWN_PRODUCER),
    61: ("DELEGATION_TOKEN_AUTH_DISABLED", ErrorCode.TOKENS_DISABLED),
    62: ("DELEGATION_TOKEN_NOT_FOUND", ErrorCode.UNKNOWN_TOKEN),
    63: ("DELEGATION_TOKEN_OWNER_MISMATCH", ErrorCode.TOKEN_OWNER_MISMATCH),
    64: ("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", ErrorCode.TOKEN_REQUEST_REFUSED),
    65: ("DELEGATION_TOKEN_AUTHORIZATION_FAILED", ErrorCode.TOKEN_NOT_AUTHORIZED),
    66: ("DELEGATION_TOKEN_EXPIRED", ErrorCode.TOKEN_EXPIRED),
    67: ("INVALID_PRINCIPAL_TYPE", ErrorCode.INVALID_PRINCIPAL_TYPE),
    68: ("NON_EMPTY_GROUP", ErrorCode.GROUP_NOT_EMPTY),
    69: ("GROUP_ID_NOT_FOUND", ErrorCode.UNKNOWN_GROUP),
    70: ("FETCH_SESSION_ID_NOT_FOUND", ErrorCode.UNKNOWN_FETCH_SESSION),
    71: ("INVALID_FETCH_SESSION_EPOCH", ErrorCode.INVALID_FETCH_EPOCH),
    72: ("LISTENER_NOT_FOUND", ErrorCode.WRITER_UNAVAILABLE),
    73: ("TOPIC_DELETION_DISABLED", ErrorCode.POLICY_VIOLATION),
    74: ("FENCED_LEADER_EPOCH", ErrorCode.FENCED_EPOCH),
    75: ("UNKNOWN_LEADER_EPOCH", ErrorCode.UNKNOWN_EPOCH),
    76: ("UNSUPPORTED_COMPRESSION_TYPE", ErrorCode.UNSUPPORTED_COMPRESSION),
    78: ("OFFSET_NOT_AVAILABLE", ErrorCode.WRITER_UNAVAILABLE),
    79: ("MEMBER_ID_REQUIRED", ErrorCode.MEMBER_ID_REQUIRED),
    80: ("PREFERRED_LEADER_NOT_AVAILABLE", ErrorCode.WRITER_UNAVAILABLE),
    81: ("GROUP_MAX_SIZE_REACHED", ErrorCode.GROUP_FULL),
    82: ("FENCED_INSTANCE_ID", ErrorCode.FENCED_MEMBER),
    84: ("ELECTION_NOT_NEEDED", ErrorCode.ELECTION_NOT_NEEDED),
    85: ("NO_REASSIGNMENT_IN_PROGRESS", ErrorCode.NO_REASSIGNMENT),
    86: ("GROUP_SUBSCRIBED_TO_TOPIC", ErrorCode.GROUP_SUBSCRIBED),
    87: ("INVALID_RECORD", ErrorCode.INVALID_RECORD),
    88: ("UNSTABLE_OFFSET_COMMIT", ErrorCode.UNSTABLE_OFFSET),
    89: ("THROTTLING_QUOTA_EXCEEDED", ErrorCode.THROTTLED),
    90: ("PRODUCER_FENCED", ErrorCode.FENCED_PRODUCER),
    91: ("RESOURCE_NOT_FOUND", ErrorCode.UNKNOWN_RESOURCE),
    92: ("DUPLICATE_RESOURCE", ErrorCode.DUPLICATE_RESOURCE),
    93: ("UNACCEPTABLE_CREDENTIAL", ErrorCode.UNACCEPTABLE_CREDENTIAL),
    95: ("INVALID_UPDATE_VERSION", ErrorCode.INVALID_FEATURE_LEVEL),
    100: ("UNKNOWN_TOPIC_ID", ErrorCode.UNKNOWN_TOPIC_ID),
    105: ("TRANSACTIONAL_ID_NOT_FOUND", ErrorCode.UNKNOWN_TRANSACTION),
    120: ("TRANSACTION_ABORTABLE", ErrorCode.TRANSACTION_ABORTABLE),
    128: ("INVALID_REGULAR_EXPRESSION", ErrorCode.INVALID_PATTERN),
    102: ("BROKER_ID_NOT_REGISTERED", ErrorCode.UNKNOWN_NODE),
    103: ("INCONSISTENT_TOPIC_ID", ErrorCode.INCONSISTENT_TOPIC_ID),
    110: ("FENCED_MEMBER_EPOCH", ErrorCode.FENCED_MEMBER_EPOCH),
    111: ("UNRELEASED_INSTANCE_ID", ErrorCode.UNRELEASED_INSTANCE),
    112: ("UNSUPPORTED_ASSIGNOR", ErrorCode.UNSUPPORTED_ASSIGNOR),
    113: ("STALE_MEMBER_EPOCH", ErrorCode.STALE_MEMBER_EPOCH),
    117: ("UNKNOWN_SUBSCRIPTION_ID", ErrorCode.UNKNOWN_SUBSCRIPTION),
    118: ("TELEMETRY_TOO_LARGE", ErrorCode.TELEMETRY_TOO_LARGE),
    121: ("INVALID_RECORD_STATE", ErrorCode.INVALID_RECORD_STATE),
    122: ("SHARE_SESSION_NOT_FOUND", ErrorCode.UNKNOWN_SHARE_SESSION),
    123: ("INVALID_SHARE_SESSION_EPOCH", ErrorCode.INVALID_SHARE_SESSION_EPOCH),
    133: ("SHARE_SESSION_LIMIT_REACHED", ErrorCode.SHARE_SESSION_LIMIT),
}

# These are also retriable, after a metadata refresh.
RETRIABLE_FENCES: Final = frozenset({ErrorCode.FENCED_EPOCH, ErrorCode.UNKNOWN_EPOCH})

_FENCED: Final = frozenset(
    {
        ErrorCode.FENCED_EPOCH,
        ErrorCode.UNKNOWN_EPOCH,
        ErrorCode.FENCED_PRODUCER,
        ErrorCode.FENCED_COORDINATOR,
        ErrorCode.FENCED_MEMBER,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNRELEASED_INSTANCE,
        ErrorCode.UNKNOWN_MEMBER,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)

_REMEDIES: Final[dict[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC: "create the topic, or check its name",
    ErrorCode.TOPIC_EXISTS: "choose another name, or use the existing topic",
    ErrorCode.RECORD_TOO_LARGE: "raise max.message.bytes on the topic, or send less",
    ErrorCode.OFFSET_OUT_OF_RANGE: "seek to an offset between the earliest and the latest",
    ErrorCode.GROUP_NOT_EMPTY: "stop the members of the group first",
    ErrorCode.UNSUPPORTED_VERSION: "use a newer broker",
    ErrorCode.NOT_AUTHORIZED: "request the permission, or log in as a user who has it",
    ErrorCode.GROUP_NOT_AUTHORIZED: "request the permission, or log in as a user who has it",
    ErrorCode.CLUSTER_NOT_AUTHORIZED: "request the permission, or log in as a user who has it",
    ErrorCode.AUTHENTICATION_FAILED: "check name and secret",
}


def error_of(number: int, message: str | None = None, *, subject: str = "") -> MainstemError:
    """The Mainstem error for a Kafka error number; ``message`` is the broker's error message."""
    name, code = TABLE.get(number, (f"Kafka error {number}", ErrorCode.INTERNAL))
    # Kafka's name is only needed where no error code of ours corresponds.
    cause = f"{name}: {message}" if message and code is ErrorCode.INTERNAL else message or name
    remedy = _REMEDIES.get(code, "")
    if code is ErrorCode.CORRUPT:
        return Corrupt(cause, subject=subject)
    if code in RETRIABLE:
        return Unavailable(code, cause, subject=subject, remedy=remedy)
    if code in _FENCED:
        return Fenced(code, cause, subject=subject, remedy=remedy)
    return InvalidRequest(code, cause, subject=subject, remedy=remedy)


def check(number: int, message: str | None = None, *, subject: str = "") -> None:
    """Raises unless the number is 0."""
    if number:
        raise error_of(number, message, subject=subject)


def may_retry(error: MainstemError) -> bool:
    """Whether the same call may succeed after a metadata refresh."""
    return error.retriable or error.code in RETRIABLE_FENCES


def unreachable(address: str, why: str) -> Unavailable:
    """The error for an address that does not respond."""
    return Unavailable(
        ErrorCode.WRITER_UNAVAILABLE,
        f"cannot reach the node: {why}",
        subject=address,
        remedy="check the address, that the node runs, and whether it requires TLS or a login",
    )


def untrusted(address: str, error: ssl.SSLError) -> InvalidRequest:
    """The error for a failed TLS handshake; not retriable."""
    if isinstance(error, ssl.SSLCertVerificationError):
        cause = f"the node's certificate is not trusted: {error.verify_message}"
        remedy = "trust the authority that signed it, and connect to a host name that it contains"
    else:
        cause = f"TLS failed: {error.reason or error}"
        remedy = "check that the listener uses TLS, and whether it requires a client certificate"
    return InvalidRequest(ErrorCode.AUTHENTICATION_FAILED, cause, subject=address, remedy=remedy)
