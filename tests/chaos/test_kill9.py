import pytest
from tests.chaos.history import Kind, check
from tests.chaos.kill9 import kill_rounds, summary

from mainstem.testing.local_node import LocalNode

# The rounds need not wait for members that nobody starts.
QUICK_GROUPS = ("--set", "groups.initial_rebalance_delay_ms=100")
# More than can be on its way without an answer when the node dies.
FORGOTTEN_BYTES = 100_000


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_acknowledged_records_offsets_and_groups_survive_kill_9_under_load() -> None:
    with LocalNode(arguments=QUICK_GROUPS) as node:
        history, once = kill_rounds(node, 5)
    anomalies = check(history, once=once)
    assert not anomalies, summary(history, anomalies)
    assert len(history.resumed) >= 5, "groups must have resumed for the round to mean anything"


class ForgetfulNode(LocalNode):
    """The mutant of the story above: its newest records are gone whenever it comes back."""

    def kill9(self) -> None:
        super().kill9()
        for path in self.data_dir.glob("topics/plain-*/**/*.log"):
            content = path.read_bytes().rstrip(b"\0")
            with path.open("r+b") as file:
                file.truncate(max(len(content) - FORGOTTEN_BYTES, 0))


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_node_that_forgets_the_newest_records_is_found_out() -> None:
    with ForgetfulNode(arguments=QUICK_GROUPS) as node:
        history, once = kill_rounds(node, 1)
    kinds = {anomaly.kind for anomaly in check(history, once=once)}
    assert {Kind.LOST, Kind.DIVERGENT} <= kinds
