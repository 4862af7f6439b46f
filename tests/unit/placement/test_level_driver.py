"""A data folder says at which level it is written."""

from pathlib import Path
from typing import Any

from mainstem.model.features import MAINSTEM_VERSION
from mainstem.model.ids import NodeId
from mainstem.placement.changes.commands import AnyFact, ClusterFormed, FeaturesSet
from mainstem.placement.persistence.identity_storage import open_identity
from mainstem.placement.persistence.version_level_driver import VersionLevelDriver
from mainstem.placement.state.catalogue import Catalogue
from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault


class Service:
    """A catalogue that is told facts."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self.listeners: list[Any] = []

    def subscribe(self, listener: Any) -> None:
        self.listeners.append(listener)

    def take(self, fact: AnyFact) -> None:
        self.catalogue.replay(fact)
        for listener in self.listeners:
            listener(fact)


def test_a_level_that_does_not_fit_on_a_full_disk_is_noted_when_there_is_room(
    tmp_path: Path,
) -> None:
    service: Any = Service()
    level = VersionLevelDriver(service, tmp_path, _identity(tmp_path))
    with FaultyFiles() as files:
        files.begin(tmp_path, FileFault.FULL)
        service.take(FeaturesSet(1, {MAINSTEM_VERSION: 2}))
        assert level.identity.level == 1
        files.end(tmp_path)
        service.take(ClusterFormed("c", 0))

    assert level.identity.level == _identity(tmp_path).level == 2


def test_a_node_starts_on_a_full_disk_before_it_has_noted_the_level(tmp_path: Path) -> None:
    service: Any = Service()
    service.take(FeaturesSet(1, {MAINSTEM_VERSION: 2}))
    identity = _identity(tmp_path)
    with FaultyFiles() as files:
        files.begin(tmp_path, FileFault.FULL)

        assert VersionLevelDriver(service, tmp_path, identity).identity.level == 1


def _identity(folder: Path) -> Any:
    return open_identity(folder, node_id=NodeId(1), cluster_id="c", now_ms=0)
