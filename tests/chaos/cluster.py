"""Faults of nodes in a cluster under the load of every protocol, judged by the history checkers.

After every fault writing and reading must go on, in every partition and over every protocol, and
after the last one everything that was acknowledged is read.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from tests.chaos.checked import Checked
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.history import Anomaly
from tests.chaos.state import check_all_run, state_of
from tests.chaos.workload import Histories, Workload

from mainstem.testing.local_cluster import LocalCluster

PROGRESS_TIMEOUT_S = 90.0
CALM_S = (0.2, 1.0)


@dataclass(frozen=True, slots=True)
class FaultRun:
    """What was done to a cluster, what its clients saw, and what is wrong with that."""

    done: Counter[str]
    histories: Histories
    checked: list[Checked]

    @property
    def anomalies(self) -> list[Anomaly]:
        """Every broken rule of every history."""
        return [anomaly for one in self.checked for anomaly in one.anomalies]

    def summary(self) -> str:
        """One line of figures, then the first anomalies."""
        figures = ", ".join(f"{count} {name}" for name, count in self.histories.figures().items())
        first = [str(anomaly) for anomaly in self.anomalies[:20]]
        return "\n".join([f"{figures}, {len(self.anomalies)} anomalies", *first])


def fault_rounds(
    cluster: LocalCluster,
    rounds: int,
    *,
    seed: int = 0,
    faults: Mapping[str, Fault] = FAULTS,
    with_java: bool = False,
) -> FaultRun:
    """Let one fault after the other happen under load, then judge what clients saw."""
    cluster.wait_for_three_voters()
    random = Random(seed)
    done: Counter[str] = Counter()
    with Workload(cluster, seed=seed, with_java=with_java) as load:
        for name, _ in zip(_rotation(faults, random), range(rounds), strict=False):
            _await_progress(cluster, load, done)
            load.group.turn(random.uniform(*CALM_S))
            node = random.choice(list(cluster.nodes.values()))
            done[name] += 1
            try:
                faults[name](cluster, node, random)
            except OSError as error:  # a node that was asked for something did not answer
                check_all_run(cluster)
                found = f"{cluster.logs()}\n{state_of(cluster)}"
                raise AssertionError(f"{found}\n{name} of node {node.number}: {error!r}") from error
        _await_progress(cluster, load, done)
        load.group.bootstrap = cluster.bootstrap
        load.group.replace_member()
        _await_progress(cluster, load, done)
        load.finish()
    return FaultRun(done, load.histories, load.histories.check())


def _rotation(faults: Mapping[str, Fault], random: Random) -> Iterator[str]:
    """Every kind of fault as often as the others, in an order that changes."""
    while True:
        turn = list(faults)
        random.shuffle(turn)
        yield from turn


def _await_progress(cluster: LocalCluster, load: Workload, done: Counter[str]) -> None:
    """Until every client of every protocol gets on again."""
    before = load.progress()
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while waiting := [name for name, count in load.progress().items() if count <= before[name]]:
        check_all_run(cluster)
        assert time.monotonic() < deadline, (
            f"{cluster.logs()}\n{state_of(cluster)}\n{load.group.described()}\n"
            f"no progress after {dict(done)}: {waiting}"
        )
        load.group.turn(0.1)
