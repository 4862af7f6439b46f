"""Raft keeps its promises in any order of ticks, losses, writes and crashes."""

import pytest
from tests.kit.simulation.raft.core_episodes import EpisodeCounts, episode

EPISODES = 120  # in each of four parts
STEPS = 1_500


@pytest.mark.parametrize("part", range(4))
def test_the_promises_of_raft_hold_in_random_episodes(part: int) -> None:
    outcomes = []
    for seed in range(part * EPISODES, (part + 1) * EPISODES):
        try:
            outcomes.append(episode(seed, STEPS))
        except AssertionError as error:
            error.add_note(f"seed {seed}, {STEPS} steps")
            raise
    total = EpisodeCounts(*(sum(column) for column in zip(*outcomes, strict=True)))
    assert total.terms > EPISODES, "hardly anybody was ever elected"
    assert total.committed > 5 * EPISODES, "hardly anything was ever committed"
    assert total.reads > EPISODES, "hardly anything was ever read"
    assert total.changes > EPISODES // 10, "the membership hardly ever changed"


def test_the_promises_of_raft_hold_when_nodes_believe_that_others_are_gone() -> None:
    terms = committed = 0
    for seed in range(4 * EPISODES, 5 * EPISODES):
        try:
            outcome = episode(seed, STEPS, gone=0.01)
        except AssertionError as error:
            error.add_note(f"seed {seed}, {STEPS} steps")
            raise
        terms += outcome.terms
        committed += outcome.committed
    assert terms > EPISODES, "hardly anybody was ever elected"
    assert committed > 5 * EPISODES, "hardly anything was ever committed"


def test_a_seed_brings_an_episode_back() -> None:
    assert episode(7, 600) == episode(7, 600)
