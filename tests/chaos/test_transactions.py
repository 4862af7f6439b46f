import pytest
from tests.chaos.transactions import KINDS, run_transactions

from mainstem.testing.local_node import LocalNode


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_two_thousand_transactions_survive_kills_pauses_and_zombies() -> None:
    with LocalNode() as node:
        run = run_transactions(node, 2_000)
    assert not run.anomalies, run.summary
    assert len(run.history.transactions) >= 2_000, run.summary
    assert len(run.faults) == len(KINDS), run.summary
    assert run.fenced_zombies >= 2, run.summary
