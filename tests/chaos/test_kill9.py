import pytest
from tests.chaos.kill9 import kill_rounds, summary

from mainstem.testing.local_node import LocalNode


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_acknowledged_records_offsets_and_groups_survive_kill_9_under_load() -> None:
    with LocalNode() as node:
        history, anomalies = kill_rounds(node, 5)
    assert not anomalies, summary(history, anomalies)
    assert len(history.resumed) >= 5, "groups must have resumed for the round to mean anything"
