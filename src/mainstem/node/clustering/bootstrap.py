"""Makes a single node the first of a cluster: its catalogue becomes the first snapshot."""

import logging
from pathlib import Path

import msgspec

from mainstem.cluster.raft.messages import initial_state
from mainstem.cluster.raft.persistence.snapshot_storage import SnapshotStorage
from mainstem.model.ids import NodeId
from mainstem.placement.persistence.journal_storage import JournalStorage
from mainstem.placement.service import replayed
from mainstem.placement.state.catalogue import Catalogue

ALONE = "catalogue"
ASIDE = "catalogue.alone"

_log = logging.getLogger(__name__)


def bootstrap_state(data: Path) -> Catalogue:
    """The catalogue that the node kept as a single node; empty for a new folder.

    Raises:
        Corrupt: it is damaged.
    """
    folder = data / ALONE
    if not folder.exists():
        return Catalogue()
    journal = JournalStorage(folder)
    try:
        return replayed(journal.open(), str(folder))
    finally:
        journal.close()


def bootstrap_group(folder: Path, node: NodeId, catalogue: Catalogue) -> None:
    """Write the initial state of the group of this one node; opening it creates its log."""
    folder.mkdir(parents=True, exist_ok=True)
    state = msgspec.json.encode(catalogue.state()) if catalogue.cluster_id else b""
    SnapshotStorage(folder).save(initial_state((node,)).snapshot, state)


def archive_journal(data: Path) -> None:
    """Move the single node's catalogue aside: the group holds the catalogue from now on."""
    folder, aside = data / ALONE, data / ASIDE
    if folder.exists() and not aside.exists():
        folder.rename(aside)
        _log.info("the catalogue is kept by the group now; the previous files are in %s", aside)
