from pathlib import Path

import pytest
from tests.chaos.history import Kind
from tests.chaos.kill9 import summary
from tests.chaos.power_loss import Loss, compile_lying_disk, lose_power_under_load

pytestmark = [pytest.mark.needs("root"), pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def loss(tmp_path_factory: pytest.TempPathFactory) -> Loss:
    return lose_power_under_load(tmp_path_factory.mktemp("power"))


def test_every_acknowledged_record_survives_a_loss_of_power(loss: Loss) -> None:
    assert not loss.refused, loss.refused
    assert not loss.anomalies, summary(loss.history, loss.anomalies)
    assert loss.history.final, "something must have been stored for this to mean anything"


def test_a_group_resumes_where_it_committed_before_a_loss_of_power(loss: Loss) -> None:
    assert len(loss.history.resumed) == 3, "every partition of the group must have been resumed"


def test_a_node_whose_disk_fails_stops_by_itself_and_says_why(loss: Loss) -> None:
    assert loss.status, "the node must end with an error status when its disk fails"
    assert "fatal" in loss.log
    assert "Input/output error" in loss.log or "Read-only file system" in loss.log


def test_a_disk_that_only_claims_to_sync_loses_acknowledged_records(tmp_path: Path) -> None:
    """The mutant: without it a test that never loses anything would prove nothing."""
    mutant = lose_power_under_load(tmp_path, preload=compile_lying_disk(tmp_path))
    assert not mutant.refused, mutant.refused
    assert Kind.LOST in {anomaly.kind for anomaly in mutant.anomalies}
