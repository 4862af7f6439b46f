"""What a driver needs from its environment, and its callbacks."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from mainstem.cluster.raft.drivers.snapshot_driver import SnapshotFiles
from mainstem.cluster.raft.messages import ConfState, Entry, HardState, SnapshotMeta, SoftState
from mainstem.cluster.raft.persistence.snapshot_storage import IncomingSnapshot
from mainstem.model.ids import NodeId
from mainstem.model.limits import MIB, RAFT_ENTRY_BYTES_MAX


class Transport(Protocol):
    """Takes messages to other nodes; one that cannot be delivered soon is dropped."""

    def send(self, to: NodeId, data: bytes) -> None:
        """Never blocks, never raises because of the other side."""
        ...


class StateMachine(Protocol):
    """The replicated state machine. All calls come from the loop, in the order of the log."""

    def apply(self, index: int, data: bytes) -> None:
        """An entry is committed. Must not fail."""
        ...

    def snapshot(self) -> Callable[[], bytes]:
        """Capture the current state; the returned function encodes it, on another thread."""
        ...

    def restore(self, state: bytes) -> None:
        """Replace the state by that of the snapshot; no bytes: by the initial state."""
        ...


class Storage(SnapshotFiles, Protocol):
    """The part of ``storage.RaftStorage`` that drivers use."""

    async def save(
        self,
        hard_state: HardState | None,
        entries: Sequence[Entry],
        incoming: IncomingSnapshot | None = None,
    ) -> bytes | None:
        """Make a ``Ready`` durable; the state of the snapshot that it installs."""
        ...

    async def save_snapshot(
        self, meta: SnapshotMeta, encode: Callable[[], bytes], *, keep: int
    ) -> None:
        """Encode and keep a snapshot of this node's own."""
        ...

    async def close(self) -> None:
        """Close the files."""
        ...


class DriverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one node is run.

    Attributes:
        snapshot_entries: applied entries after which a snapshot is taken.
        snapshot_bytes: the same by their size.
        keep_entries: how many entries before a snapshot are kept for followers that lag a little.
        proposal_timeout_s: after this a proposal's outcome is reported as unknown.
        chunk_timeout_s: after this a piece of a snapshot is sent again.
        entry_bytes_max: a larger proposal is refused.
    """

    snapshot_entries: int = 10_000
    snapshot_bytes: int = 4 * MIB
    keep_entries: int = 1_000
    proposal_timeout_s: float = 10.0
    chunk_timeout_s: float = 2.0
    entry_bytes_max: int = RAFT_ENTRY_BYTES_MAX


class DriverHooks(msgspec.Struct, frozen=True, kw_only=True):
    """Callbacks and settings of a driver.

    Attributes:
        on_fatal: storage failed or an invariant broke; the node must stop.
        on_role: the leader has changed, after everything before it was applied.
        on_members: the membership has changed.
        settings: see ``DriverSettings``.
    """

    on_fatal: Callable[[BaseException], None]
    on_role: Callable[[SoftState], None] = lambda _: None
    on_members: Callable[[ConfState], None] = lambda _: None
    settings: DriverSettings = DriverSettings()
