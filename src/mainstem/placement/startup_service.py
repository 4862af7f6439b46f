"""From a data folder to a running catalogue: the steps of a start, in order.

1. Read snapshot and journal. Damage stops the start, unless a rebuild was requested.
2. Check the owner of the folder (``node.json``).
3. Nothing was ever recorded, but there are records or an export: the catalogue was lost. A cluster
   of one rebuilds it from the folders and the last export, and logs what it assumed.
4. Register the name of the cluster and a new incarnation of the node.
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from mainstem.model.clock import Clock
from mainstem.model.features import OWN_LEVELS
from mainstem.model.metadata import Node
from mainstem.placement.changes.commands import FormCluster, RegisterNode, RestoreTopics
from mainstem.placement.persistence.export_storage import NAME as EXPORT_NAME
from mainstem.placement.persistence.export_storage import (
    Exported,
    ExportedTopic,
    MetadataExport,
    read_export,
)
from mainstem.placement.persistence.identity_storage import NAME as IDENTITY_NAME
from mainstem.placement.persistence.identity_storage import NodeIdentity, open_identity
from mainstem.placement.persistence.journal_storage import JournalStorage, set_aside
from mainstem.placement.persistence.rebuilding import KnownTopic, RebuildableRange, rebuild
from mainstem.placement.persistence.version_level_driver import VersionLevelDriver
from mainstem.placement.service import LonePlacementService, PlacementService, replayed
from mainstem.placement.state.catalogue import Catalogue

_log = logging.getLogger(__name__)


class Placement(NamedTuple):
    """A running catalogue with its journal and export."""

    service: PlacementService
    export: MetadataExport
    identity: NodeIdentity
    incarnation: int

    @property
    def catalogue(self) -> Catalogue:
        """The durable state that this node knows."""
        return self.service.catalogue

    async def close(self) -> None:
        """Finish what was submitted, write the export, close the files."""
        await self.service.close()
        await self.export.close()


class StartupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of a start.

    ``directory`` identifies this disk; ``scan`` lists the range folders of this node;
    ``rebuild`` sets the existing catalogue aside and rebuilds it from them.
    """

    data: Path
    node: Node
    cluster_id: str | None
    directory: str
    scan: Callable[[], Iterable[RebuildableRange]]
    rebuild: bool = False


async def open_placement(
    start: StartupOptions, clock: Clock, on_fatal: Callable[[BaseException], None]
) -> Placement:
    """Open the catalogue of a data folder and register the node under a new incarnation.

    Raises:
        Corrupt: the catalogue is damaged; the message contains a remedy.
        InvalidRequest: the folder belongs to another node or cluster.
    """
    folder = start.data / "catalogue"
    if start.rebuild and (aside := set_aside(folder)) is not None:
        _log.warning("the catalogue was set aside as %s and is rebuilt", aside)
    journal = JournalStorage(folder)
    try:
        stored = journal.open()
        if stored.cut_bytes:
            _log.warning("cut %d bytes of an unfinished journal frame", stored.cut_bytes)
        catalogue = replayed(stored, str(folder))
        exported = read_export(start.data / EXPORT_NAME)
        identity = identity_of(start, catalogue, exported, clock.wall_ms())
        service = LonePlacementService(journal, catalogue, clock, on_fatal)
        if stored.is_empty:
            await restore_lost(service, start, exported, clock.wall_ms())
        await service.submit(FormCluster(identity.cluster_id))
        incarnation = catalogue.incarnation(start.node.id) + 1
        await service.submit(RegisterNode(start.node, incarnation, start.directory, OWN_LEVELS))
    except BaseException:
        journal.close()
        raise
    identity = VersionLevelDriver(service, start.data, identity).identity
    export = MetadataExport(start.data / EXPORT_NAME, catalogue, clock)
    service.subscribe(export.on_fact)
    return Placement(service, export, identity, incarnation)


def identity_of(
    start: StartupOptions, catalogue: Catalogue, exported: Exported | None, now_ms: int
) -> NodeIdentity:
    """The identity of the folder; a new one is given its name now."""
    # A lost node.json takes its cluster from the other files of the folder.
    name = start.cluster_id or None
    if name is None and not (start.data / IDENTITY_NAME).exists():
        name = catalogue.cluster_id or (exported.cluster_id if exported else None) or None
    return open_identity(start.data, node_id=start.node.id, cluster_id=name, now_ms=now_ms)


async def restore_lost(
    service: PlacementService, start: StartupOptions, exported: Exported | None, now_ms: int
) -> None:
    """Rebuild a lost catalogue; does nothing for a new data folder."""
    found = list(start.scan())
    known = [_known(topic) for topic in exported.topics] if exported else []
    if not found and not known:
        return
    rebuilt = rebuild(found, known, node=start.node.id, now_ms=now_ms)
    for note in rebuilt.notes:
        _log.warning("rebuilding the catalogue: %s", note)
    _log.warning("the catalogue was lost; rebuilt %d topics", len(rebuilt.topics))
    await service.submit(RestoreTopics(rebuilt.topics, rebuilt.next_producer_id))


def _known(topic: ExportedTopic) -> KnownTopic:
    return KnownTopic(
        name=topic.name,
        id=topic.topic_id,
        created_ms=topic.created_ms,
        internal=topic.internal,
        configs=topic.configs,
        positions=tuple((part.start_offset, part.epoch) for part in topic.partitions),
    )
