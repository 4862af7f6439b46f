"""Notes in a data folder at which level of ``mainstem.version`` it is written.

A node alone has no other that refuses it. So the folder itself says so, before the first thing is
written at a level, and a release that does not read that level ends at the start.

A disk that is full ends no node: the note is made with one of the next facts. Meanwhile the leader
of a cluster refuses older releases; a node alone cannot record a level on a full disk.
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
        identity: what the folder says of itself; as an attribute, what it says now.
    """

    def __init__(self, service: PlacementService, data: Path, identity: NodeIdentity) -> None:
        self._catalogue = service.catalogue
        self._data = data
        self.identity = identity
        self._is_late = False
        service.subscribe(self._on_fact)
        self.note()

    def note(self) -> None:
        """Write the level down if it has risen."""
        self._is_late = self._catalogue.level > self.identity.level
        if not self._is_late:
            return
        try:
            self.identity = write_level(self._data, self.identity, self._catalogue.level)
        except OSError as error:
            passing = refusal(error, self._data)
            if passing is None:
                raise
            _log.warning("the level of the data folder is not noted yet: %s", passing)
        else:
            self._is_late = False

    def _on_fact(self, fact: AnyFact) -> None:
        if self._is_late or isinstance(fact, FeaturesSet):
            self.note()
