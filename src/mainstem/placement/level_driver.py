"""Notes in a data folder at which level of ``mainstem.version`` it is written.

A node alone has no other that refuses it. So the folder itself says so, before the first thing is
written at a level, and a release that does not read that level ends at the start.
"""

from pathlib import Path

from mainstem.placement.identity_storage import NodeIdentity, write_level
from mainstem.placement.records import AnyFact, FeaturesSet
from mainstem.placement.service import PlacementService


class LevelDriver:
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
        service.subscribe(self._on_fact)
        self.note()

    def note(self) -> None:
        """Write the level down if it has risen."""
        if self._catalogue.level > self.identity.level:
            self.identity = write_level(self._data, self.identity, self._catalogue.level)

    def _on_fact(self, fact: AnyFact) -> None:
        if isinstance(fact, FeaturesSet):
            self.note()
