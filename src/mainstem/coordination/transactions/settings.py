"""The settings of transaction coordination, with Kafka's defaults."""

from msgspec import Struct

_MINUTE_MS = 60_000


class TransactionSettings(Struct, frozen=True, kw_only=True):
    """Each field description states when to change it.

    Attributes:
        timeout_max_ms: raise it for transactions that last more than a quarter of an hour.
        two_phase_enabled: disable it where no external coordinator ends transactions: two-phase
            transactions do not time out.
        id_expiration_ms: how long an unused transactional id is kept; at least the longest pause
            of a producer that relies on being fenced.
        expiration_check_ms: interval between checks for unused ids.
        timeout_check_ms: interval between checks for timed-out transactions.
        patience_ms: how long a request waits for markers that are being written before the client
            has to retry.
        state_partitions: partitions of the internal topic; fixed once the topic exists.
    """

    timeout_max_ms: int = 15 * _MINUTE_MS
    two_phase_enabled: bool = True
    id_expiration_ms: int = 7 * 24 * 60 * _MINUTE_MS
    expiration_check_ms: int = 60 * _MINUTE_MS
    timeout_check_ms: int = 1_000
    patience_ms: int = 1_000
    state_partitions: int = 50
