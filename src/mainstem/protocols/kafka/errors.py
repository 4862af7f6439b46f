"""The one table from our error codes to Kafka's error numbers; a test keeps it complete."""

from mainstem.model.errors import ErrorCode, MainstemError

NONE = 0
UNKNOWN_SERVER_ERROR = -1

KAFKA_CODES: dict[ErrorCode, int] = {
    ErrorCode.INVALID_REQUEST: 42,
    ErrorCode.UNSUPPORTED_VERSION: 35,
    ErrorCode.INVALID_TOPIC_NAME: 17,
    ErrorCode.UNKNOWN_TOPIC: 3,
    ErrorCode.UNKNOWN_TOPIC_ID: 100,
    ErrorCode.INCONSISTENT_TOPIC_ID: 103,
    ErrorCode.TOPIC_EXISTS: 36,
    ErrorCode.INVALID_PARTITIONS: 37,
    ErrorCode.INVALID_REPLICATION_FACTOR: 38,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: 39,
    ErrorCode.INVALID_CONFIG: 40,
    ErrorCode.POLICY_VIOLATION: 44,
    ErrorCode.OFFSET_OUT_OF_RANGE: 1,
    ErrorCode.INVALID_RECORD: 87,
    ErrorCode.RECORD_TOO_LARGE: 10,
    ErrorCode.UNSUPPORTED_COMPRESSION: 76,
    ErrorCode.UNSUPPORTED_RECORD_FORMAT: 43,
    ErrorCode.INVALID_TIMESTAMP: 32,
    ErrorCode.INVALID_ACKS: 21,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: 12,
    ErrorCode.INVALID_GROUP: 24,
    ErrorCode.UNKNOWN_GROUP: 69,
    ErrorCode.GROUP_NOT_EMPTY: 68,
    ErrorCode.GROUP_SUBSCRIBED: 86,
    ErrorCode.GROUP_FULL: 81,
    ErrorCode.UNSUPPORTED_ASSIGNOR: 112,
    ErrorCode.INCONSISTENT_PROTOCOL: 23,
    ErrorCode.INVALID_SESSION_TIMEOUT: 26,
    ErrorCode.UNKNOWN_FETCH_SESSION: 70,
    ErrorCode.INVALID_FETCH_EPOCH: 71,
    ErrorCode.INVALID_RECORD_STATE: 121,
    ErrorCode.UNKNOWN_SHARE_SESSION: 122,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: 123,
    ErrorCode.SHARE_SESSION_LIMIT: 133,
    ErrorCode.OUT_OF_ORDER_SEQUENCE: 45,
    ErrorCode.DUPLICATE_SEQUENCE: 46,
    ErrorCode.UNKNOWN_PRODUCER: 59,
    ErrorCode.INVALID_TXN_STATE: 48,
    ErrorCode.INVALID_PRODUCER_MAPPING: 49,
    ErrorCode.INVALID_TXN_TIMEOUT: 50,
    ErrorCode.UNKNOWN_TRANSACTION: 105,
    ErrorCode.TRANSACTION_ABORTABLE: 120,
    ErrorCode.NOT_AUTHORIZED: 29,
    ErrorCode.UNKNOWN_RESOURCE: 91,
    ErrorCode.INVALID_DIRECTORY: 57,
    ErrorCode.INVALID_PATTERN: 128,
    ErrorCode.TRANSACTIONAL_ID_NOT_AUTHORIZED: 53,
    ErrorCode.GROUP_NOT_AUTHORIZED: 30,
    ErrorCode.CLUSTER_NOT_AUTHORIZED: 31,
    ErrorCode.TOKEN_NOT_AUTHORIZED: 65,
    ErrorCode.AUTHENTICATION_FAILED: 58,
    ErrorCode.UNSUPPORTED_MECHANISM: 33,
    ErrorCode.ILLEGAL_LOGIN_STATE: 34,
    ErrorCode.SECURITY_DISABLED: 54,
    ErrorCode.UNACCEPTABLE_CREDENTIAL: 93,
    ErrorCode.DUPLICATE_RESOURCE: 92,
    ErrorCode.TOKENS_DISABLED: 61,
    ErrorCode.UNKNOWN_TOKEN: 62,
    ErrorCode.TOKEN_OWNER_MISMATCH: 63,
    ErrorCode.TOKEN_REQUEST_REFUSED: 64,
    ErrorCode.TOKEN_EXPIRED: 66,
    ErrorCode.INVALID_PRINCIPAL_TYPE: 67,
    ErrorCode.ELECTION_NOT_NEEDED: 84,
    ErrorCode.NO_REASSIGNMENT: 85,
    ErrorCode.INVALID_FEATURE_LEVEL: 95,
    ErrorCode.UNKNOWN_NODE: 102,
    ErrorCode.UNKNOWN_SUBSCRIPTION: 117,
    ErrorCode.TELEMETRY_TOO_LARGE: 118,
    # Kafka clients do not use queues; these occur only in deliveries of share groups.
    ErrorCode.INVALID_ARGUMENT: 42,
    ErrorCode.INVALID_BINDING: 42,
    ErrorCode.RESERVED_NAME: 42,
    ErrorCode.UNKNOWN_QUEUE: 91,
    ErrorCode.UNKNOWN_EXCHANGE: 91,
    ErrorCode.DECLARATION_DIFFERS: 42,
    ErrorCode.RESOURCE_LOCKED: 42,
    ErrorCode.RESOURCE_IN_USE: 42,
    ErrorCode.QUEUE_NOT_EMPTY: 42,
    ErrorCode.UNKNOWN_CONSUMER: 25,
    ErrorCode.UNKNOWN_DELIVERY: 121,
    ErrorCode.LIMIT_REACHED: 44,
    ErrorCode.FENCED_EPOCH: 74,
    ErrorCode.UNKNOWN_EPOCH: 75,
    # Clients with older Produce versions know only this code for a fenced producer.
    ErrorCode.FENCED_PRODUCER: 47,
    ErrorCode.FENCED_COORDINATOR: 52,
    ErrorCode.FENCED_MEMBER: 82,
    ErrorCode.FENCED_MEMBER_EPOCH: 110,
    ErrorCode.STALE_MEMBER_EPOCH: 113,
    ErrorCode.UNRELEASED_INSTANCE: 111,
    ErrorCode.UNKNOWN_MEMBER: 25,
    ErrorCode.ILLEGAL_GENERATION: 22,
    ErrorCode.MEMBER_ID_REQUIRED: 79,
    # If a range was sealed while its writer appended, the writer has moved.
    ErrorCode.RANGE_SEALED: 6,
    ErrorCode.NOT_WRITER: 6,
    ErrorCode.WRITER_UNAVAILABLE: 5,
    ErrorCode.NOT_ENOUGH_REPLICAS: 19,
    ErrorCode.NOT_COORDINATOR: 16,
    ErrorCode.COORDINATOR_LOADING: 14,
    ErrorCode.COORDINATOR_UNAVAILABLE: 15,
    ErrorCode.REBALANCE_IN_PROGRESS: 27,
    ErrorCode.CONCURRENT_TRANSACTIONS: 51,
    ErrorCode.UNSTABLE_OFFSET: 88,
    ErrorCode.TIMED_OUT: 7,
    ErrorCode.THROTTLED: 89,
    # Clients retry this one, which is correct: space may be freed.
    ErrorCode.DISK_FULL: 56,
    ErrorCode.STORAGE_FAILED: 56,
    ErrorCode.SHUTTING_DOWN: 6,
    ErrorCode.OVERLOADED: 7,
    ErrorCode.CORRUPT: 2,
    ErrorCode.INTERNAL: UNKNOWN_SERVER_ERROR,
}


def kafka_code(error: MainstemError | ErrorCode | None) -> int:
    """The Kafka error code; 0 for no error."""
    if error is None:
        return NONE
    code = error if isinstance(error, ErrorCode) else error.code
    return KAFKA_CODES[code]


def kafka_message(error: MainstemError) -> str:
    """The error message for a client: subject, cause and remedy."""
    text = f"{error.subject}: {error.cause}" if error.subject and error.cause else error.cause
    text = text or error.subject or error.code.name
    return f"{text} ({error.remedy})" if error.remedy else text
