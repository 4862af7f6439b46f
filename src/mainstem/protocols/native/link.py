"""What the parts of a native session see of their connection and of the node."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from mainstem.broker.api.broker import Broker
from mainstem.model.clock import Clock
from mainstem.protocols.backpressure import Backpressure
from mainstem.protocols.permissions import ClientPermissions
from mainstem.protocols.runner import Runner
from mainstem.telemetry.metrics import Metrics
from mainstem.wire.native.frames import FRAME_BYTES_MAX
from mainstem.wire.native.words import Word

HEARTBEAT_MS: Final = 30_000
REQUESTS_OPEN_MAX: Final = 1_000
# Messages that were published and are not settled yet.
PUBLISHED_OPEN_MAX: Final = 100_000
SUBSCRIPTIONS_MAX: Final = 10_000


class NativeLimits(Struct, frozen=True, kw_only=True):
    """What holds for every connection."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    heartbeat_ms: int = HEARTBEAT_MS
    requests_open_max: int = REQUESTS_OPEN_MAX
    published_open_max: int = PUBLISHED_OPEN_MAX
    subscriptions_max: int = SUBSCRIPTIONS_MAX


class NativeService(Struct, frozen=True, kw_only=True):
    """What all native sessions of a node share. ``new_name`` gives names that nobody guesses."""

    broker: Broker
    clock: Clock
    metrics: Metrics
    limits: NativeLimits
    new_name: Callable[[], str]
    cluster_name: str
    version: str


class NativeConnectionLink(Struct, frozen=True, kw_only=True):
    """One connection that is in, as its parts see it."""

    namespace: str
    connection: str  # a name that no other connection of the cluster has
    permissions: ClientPermissions
    runner: Runner
    send: Callable[[int, Word], int]  # one word, by its number; the bytes that it takes
    send_body: Callable[[int, bytes], int]  # the same of a word that is written already
    send_to_all: Callable[[Sequence[int], bytes], None]  # one short word as the answer to many
    unsent_bytes: Callable[[], int]  # what the client has not taken yet
    is_limited: Callable[[], bool]  # whether there is any quota at all
    charge: Callable[[str, int], int]  # count what is used of a limited good; ms to wait
    backpressure: Backpressure  # keeps what is read of the client within bounds
