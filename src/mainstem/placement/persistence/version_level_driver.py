"""Records in a data folder at which level of ``mainstem.version`` it is written.

A single node has no other that refuses it. So the level is written to the folder before anything
is written at that level, and a release that does not support it ends at the start.

A full disk does not stop the node: the level is recorded with a later fact. Meanwhile the leader
of a cluster refuses older releases; a single node cannot record a level on a full disk.
"""

import logging
from pathlib import Path

from mainstem.cluster.frame_storage import refusal
from mainstem.placement.changes.commands import AnyFact, FeaturesSet
from mainstem.placement.persistence.identity_storage import NodeIdentity, write_level
from mainstem.placement.service import PlacementService

_log = logging.getLogger(__name__)


class VersionLevelDriver:
    """Follows the level of a catalogue.

    Args:
        service: the catalogue.
        data: the data folder.
        identity: the folder's identity; as an attribute, the current one.
    """

    def __init__(self, service: PlacementService, data: Path, identity: NodeIdentity) -> None:
        self._catalogue = service.catalogue
        self._data = data
        self.identity = identity
        self._is_late = False
        service.subscribe(self._on_fact)
        self.note()

    def note(self) -> None:
        """Record the level if it has risen."""
        self._is_late = self._catalogue.level > self.identity.level
        if not self._is_late:
            return
        try:
            self.identity = write_level(self._data, self.identity, self._catalogue.level)
        except OSError as error:
            passing = refusal(error, self._data)
            if passing is None:
                raise
            _log.warning("the level of the data folder is not recorded yet: %s", passing)
        else:
            self._is_late = False

    def _on_fact(self, fact: AnyFact) -> None:
        if self._is_late or isinstance(fact, FeaturesSet):
            self.note()
