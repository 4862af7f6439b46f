"""Which of Kafka's APIs are for clients."""

from mainstem.wire.kafka import codec

# Keys of Kafka 4.2 that only brokers and controllers call, or that were retired.
NOT_FOR_CLIENTS = frozenset(
    {*range(4, 8), 27, *range(52, 55), 56, 58, 59, 62, 63, 67, 70, 73, *range(82, 88)}
)
API_KEY_MAX = 92


def client_facing() -> dict[int, str]:
    """Key and name of every API that a client may call."""
    return {key: codec.NAMES[key] for key in range(API_KEY_MAX + 1) if key not in NOT_FOR_CLIENTS}
