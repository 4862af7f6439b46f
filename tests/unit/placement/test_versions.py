"""``mainstem.version``: what nodes may write is raised when every node reads it, never lowered."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mainstem
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.model.features import LEVELS_OF_0_1, MAINSTEM_VERSION, OWN_LEVELS, check_readable
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.placement.changes import commands
from mainstem.placement.changes.replication_commands import FenceNode
from mainstem.placement.state.catalogue import Catalogue

NOW_MS = 1_000
LOWEST, HIGHEST = OWN_LEVELS


def do(catalogue: Catalogue, command: Any) -> int:
    """Decide and replay; how many facts that took."""
    decision = catalogue.decide(command, NOW_MS)
    for fact in decision.facts:
        catalogue.replay(fact)
    return len(decision.facts)


def register(
    node: int, incarnation: int = 1, levels: tuple[int, int] = OWN_LEVELS
) -> commands.RegisterNode:
    return commands.RegisterNode(
        Node(NodeId(node), "host", 9092), incarnation, f"dir-{node}", levels
    )


def raised(catalogue: Catalogue, level: int = HIGHEST) -> commands.SetFeatures:
    return commands.SetFeatures(catalogue.features_epoch, {MAINSTEM_VERSION: level})


def of_the_previous_release(*levels: tuple[int, int]) -> Catalogue:
    """A cluster that release 0.1 formed; node n reads the n-th levels."""
    catalogue = Catalogue()
    catalogue.replay(commands.ClusterFormed("c", NOW_MS))
    for node, read in enumerate(levels, start=1):
        do(catalogue, register(node, levels=read))
    return catalogue


def test_a_new_cluster_starts_at_the_highest_level_and_an_older_one_at_the_first() -> None:
    new = Catalogue()
    do(new, commands.FormCluster("c"))
    assert new.level == HIGHEST
    old = of_the_previous_release(LEVELS_OF_0_1)
    assert old.level == 1
    do(old, commands.FormCluster("c"))
    assert old.level == 1, "it was formed before"


def test_the_level_is_raised_once_every_node_reads_it() -> None:
    catalogue = of_the_previous_release(OWN_LEVELS, LEVELS_OF_0_1)
    with pytest.raises(InvalidRequest, match="node 2 supports 1 to 1, not 2") as refused:
        catalogue.decide(raised(catalogue), NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_FEATURE_LEVEL
    do(catalogue, register(2, incarnation=2))
    do(catalogue, raised(catalogue))
    assert (catalogue.level, Catalogue(catalogue.state()).level) == (HIGHEST, HIGHEST)


def test_a_fenced_node_counts_until_it_is_unregistered() -> None:
    catalogue = of_the_previous_release(OWN_LEVELS, LEVELS_OF_0_1)
    do(catalogue, FenceNode(NodeId(2), 1))
    with pytest.raises(InvalidRequest, match="mainstem node remove 2"):
        catalogue.decide(raised(catalogue), NOW_MS)
    do(catalogue, commands.UnregisterNode(NodeId(2), NodeId(1)))
    do(catalogue, raised(catalogue))
    assert catalogue.level == HIGHEST


def test_the_level_is_never_lowered() -> None:
    catalogue = of_the_previous_release(OWN_LEVELS)
    do(catalogue, raised(catalogue))
    with pytest.raises(InvalidRequest, match="cannot be lowered to 1"):
        catalogue.decide(raised(catalogue, 1), NOW_MS)


def test_a_node_of_the_previous_release_does_not_register_once_the_level_is_raised() -> None:
    catalogue = of_the_previous_release(OWN_LEVELS)
    do(catalogue, raised(catalogue))
    with pytest.raises(InvalidRequest, match="node 1 supports 1 to 1, not 2"):
        catalogue.decide(register(1, incarnation=2, levels=LEVELS_OF_0_1), NOW_MS)


def test_a_node_that_registered_with_an_older_leader_announces_its_levels_afterwards() -> None:
    catalogue = of_the_previous_release(LEVELS_OF_0_1)
    announced = commands.AnnounceLevels(NodeId(1), 1, OWN_LEVELS)
    assert do(catalogue, announced) == 1
    known = catalogue.node(NodeId(1))
    assert known is not None
    assert (known.incarnation, known.levels) == (1, OWN_LEVELS)
    assert do(catalogue, announced) == 0, "known already"


def test_a_fenced_node_is_not_made_live_by_what_it_announces() -> None:
    catalogue = of_the_previous_release(LEVELS_OF_0_1)
    do(catalogue, FenceNode(NodeId(1), 1))
    with pytest.raises(Fenced, match="the node is fenced"):
        catalogue.decide(commands.AnnounceLevels(NodeId(1), 1, OWN_LEVELS), NOW_MS)


def test_what_the_previous_release_wrote_of_a_node_means_its_levels() -> None:
    line = (
        b'{"type":"NodeRegistered","node":{"id":1,"host":"h","port":1},"incarnation":1,'
        b'"directory":"d","at_ms":1,"elections":[]}'
    )
    assert msgspec.json.decode(line, type=commands.NodeRegistered).levels == LEVELS_OF_0_1


def test_a_cluster_above_what_this_release_reads_is_refused_with_both_numbers() -> None:
    check_readable({}, "the catalogue")
    with pytest.raises(InvalidRequest) as refused:
        check_readable({MAINSTEM_VERSION: HIGHEST + 1}, "the catalogue")
    text = str(refused.value)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert f"at mainstem.version {HIGHEST + 1}" in text
    assert f"reads levels {LOWEST} to {HIGHEST}" in text
    assert "start a later release" in text


def test_the_package_and_the_program_name_the_same_release() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert project["project"]["version"] == mainstem.__version__
