from pathlib import Path

import pytest
from tests.chaos.history import Kind
from tests.chaos.kill9 import summary
from tests.chaos.power_loss import compile_lying_disk, lose_power_under_load

pytestmark = [pytest.mark.needs("root"), pytest.mark.slow, pytest.mark.timeout(180)]


def test_every_acknowledged_record_survives_a_loss_of_power(tmp_path: Path) -> None:
    loss = lose_power_under_load(tmp_path)
    assert not loss.refused, loss.refused
    assert not loss.anomalies, summary(loss.history, loss.anomalies)


def test_a_node_whose_disk_fails_stops_by_itself_and_says_why(tmp_path: Path) -> None:
    loss = lose_power_under_load(tmp_path)
    assert loss.status, "the node must end with an error status when a sync fails"
    assert "fatal" in loss.log
    assert "Input/output error" in loss.log or "Read-only file system" in loss.log


def test_a_disk_that_only_claims_to_sync_loses_acknowledged_records(tmp_path: Path) -> None:
    """The mutant: without it a test that never loses anything would prove nothing."""
    loss = lose_power_under_load(tmp_path, preload=compile_lying_disk(tmp_path))
    assert not loss.refused, loss.refused
    assert Kind.LOST in {anomaly.kind for anomaly in loss.anomalies}
