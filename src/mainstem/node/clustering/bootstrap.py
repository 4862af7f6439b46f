"""From a node alone to the first of a cluster: its catalogue becomes the group's beginning."""

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
    """The catalogue that a node had alone; empty for a new folder.

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
    """Put down what the group of this one node begins with; its log is made when it is opened."""
    folder.mkdir(parents=True, exist_ok=True)
    state = msgspec.json.encode(catalogue.state()) if catalogue.cluster_id else b""
    SnapshotStorage(folder).save(initial_state((node,)).snapshot, state)


def archive_journal(data: Path) -> None:
    """The group holds the catalogue from now on: what the node kept alone is history."""
    folder, aside = data / ALONE, data / ASIDE
    if folder.exists() and not aside.exists():
        folder.rename(aside)
        _log.info("the catalogue is kept by the group now; what there was is in %s", aside)
