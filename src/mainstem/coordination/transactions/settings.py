"""The settings of transaction coordination, with Kafka's defaults."""

from msgspec import Struct

_MINUTE_MS = 60_000


class TransactionSettings(Struct, frozen=True, kw_only=True):
    """Each field says when to change it.

    Attributes:
        timeout_max_ms: raise it for transactions that last more than a quarter of an hour.
        two_phase_enabled: switch it off where no outside coordinator ends transactions, which are
            then never aborted by time.
        id_expiration_ms: how long an unused transactional id is remembered; at least the longest
            pause of a producer that relies on being fenced.
        expiration_check_ms: how often unused ids are looked for.
        timeout_check_ms: how late a time-out may be noticed.
        patience_ms: how long a request waits for markers that are on their way before it is told
            to come again.
        state_partitions: streams that share the transactional ids; fixed once the topic exists.
    """

    timeout_max_ms: int = 15 * _MINUTE_MS
    two_phase_enabled: bool = True
    id_expiration_ms: int = 7 * 24 * 60 * _MINUTE_MS
    expiration_check_ms: int = 60 * _MINUTE_MS
    timeout_check_ms: int = 1_000
    patience_ms: int = 1_000
    state_partitions: int = 50
