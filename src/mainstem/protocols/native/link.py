"""What the parts of a native session use of their connection and of the node."""

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
# Published messages that are not settled yet.
PUBLISHED_OPEN_MAX: Final = 100_000
SUBSCRIPTIONS_MAX: Final = 10_000


class NativeLimits(Struct, frozen=True, kw_only=True):
    """Limits of every connection."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    heartbeat_ms: int = HEARTBEAT_MS
    requests_open_max: int = REQUESTS_OPEN_MAX
    published_open_max: int = PUBLISHED_OPEN_MAX
    subscriptions_max: int = SUBSCRIPTIONS_MAX


class NativeService(Struct, frozen=True, kw_only=True):
    """What all native sessions of a node share. ``new_name`` returns unguessable names."""

    broker: Broker
    clock: Clock
    metrics: Metrics
    limits: NativeLimits
    new_name: Callable[[], str]
    cluster_name: str
    version: str


class NativeConnectionLink(Struct, frozen=True, kw_only=True):
    """One authenticated connection, as the parts of its session use it."""

    namespace: str
    connection: str  # a name that is unique in the cluster
    permissions: ClientPermissions
    runner: Runner
    send: Callable[[int, Word], int]  # one message, as response to a number; returns its bytes
    send_body: Callable[[int, bytes], int]  # the same for an encoded message
    send_to_all: Callable[[Sequence[int], bytes], None]  # one short message as the response to many
    unsent_bytes: Callable[[], int]  # queued for the client
    is_limited: Callable[[], bool]  # whether any quota is set
    charge: Callable[[str, int], int]  # charge a quota; returns ms to wait
    backpressure: Backpressure  # pauses reading from the client
