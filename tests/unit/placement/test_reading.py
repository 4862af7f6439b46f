"""Facts and states of another release are known completely, or refused with a sentence."""

import msgspec
import pytest

from mainstem.model.errors import InvalidRequest, MainstemError, UnknownVersion
from mainstem.model.features import MAINSTEM_VERSION, OWN_LEVELS
from mainstem.model.release import RELEASE
from mainstem.placement.changes.commands import CatalogueState
from mainstem.placement.state.decoding import read_fact, read_state

TOPIC = (
    b'"topic":{"id":"AAAAAAAAAAAAAAAAAAAAAA==","name":"t","created_ms":1,"streams":[],"colour":1}'
)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b'{"type":"SomethingOfTheNextRelease","x":1}', "SomethingOfTheNextRelease"),
        (b'{"type":"ProducerIdsAllocated","until":5,"colour":1}', "colour"),
        (b'{"type":"ProducerIdsAllocated","until":"many"}', "ProducerIdsAllocated"),
        (b'{"type":"TopicRestored",' + TOPIC + b"}", "colour"),
        (b"[1, 2]", "without a type"),
    ],
)
def test_what_is_not_known_is_named_and_never_left_out(line: bytes, named: str) -> None:
    with pytest.raises(UnknownVersion) as refused:
        read_fact(line, "the journal of node 1")
    text = str(refused.value)
    assert named in text
    assert "[the journal of node 1]" in text
    assert f"mainstem {RELEASE} reads version {OWN_LEVELS[0]} to {OWN_LEVELS[1]}" in text
    assert "start the release that wrote it, or a later one" in text


def test_a_level_above_what_is_read_stops_before_its_first_fact() -> None:
    levels = {MAINSTEM_VERSION: OWN_LEVELS[1] + 1}
    line = msgspec.json.encode({"type": "FeaturesSet", "epoch": 2, "levels": levels})
    with pytest.raises(InvalidRequest, match="start a later release"):
        read_fact(line, "the catalogue")


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"colours": []}, "colours"),
        ({"colours": [], "features": {MAINSTEM_VERSION: 9}}, "at mainstem.version 9"),
        ({"features": {MAINSTEM_VERSION: 9}}, "at mainstem.version 9"),
    ],
)
def test_a_snapshot_of_another_release_is_refused(more: dict[str, object], named: str) -> None:
    state = {**msgspec.to_builtins(CatalogueState(cluster_id="c")), **more}
    with pytest.raises(MainstemError, match=named):
        read_state(msgspec.json.encode(state), "the catalogue")
