"""All pipelines in one process that is killed -9: every record and every change exactly once.

``MAINSTEM_KILLS=20`` kills more often, ``MAINSTEM_SEED=7`` draws other moments and points.
"""

import os

import pytest
from tests.chaos.parts import say
from tests.chaos_pipelines.rounds import run_kills

KILLS = int(os.environ.get("MAINSTEM_KILLS", "3"))
SEED = int(os.environ.get("MAINSTEM_SEED", "0"))


@pytest.mark.slow
@pytest.mark.needs("postgres", "mariadb")
@pytest.mark.timeout(1_500 + 300 * KILLS)
def test_sinks_topics_and_changes_are_exactly_once_however_often_everything_is_killed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = run_kills(KILLS, SEED, say)
    with capsys.disabled():
        say(f"\nseed {SEED}: {outcome}")
    assert not outcome.anomalies
