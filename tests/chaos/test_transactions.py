import pytest
from tests.chaos.transactions import KINDS, run_transactions


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_two_thousand_transactions_survive_kills_pauses_and_zombies() -> None:
    run = run_transactions(2_000)
    assert not run.anomalies, run.summary
    assert len(run.history.transactions) >= 2_000, run.summary
    assert len(run.faults) == len(KINDS), run.summary
    assert run.fenced_zombies >= 2, run.summary
