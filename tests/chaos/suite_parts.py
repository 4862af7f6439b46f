"""The parts of the chaos suite: each runs servers and clients, and says what was done and found."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.kafka.peer import ApacheKafka
from bench.peers.maven import ROOT, Unavailable
from tests.chaos.checked import Checked, check_log, check_transactions
from tests.chaos.cluster import fault_rounds
from tests.chaos.faults import (
    CLIENT_FAULTS,
    DISK_FAULTS,
    FAULTS,
    MEMBER_FAULTS,
    NETWORK_FAULTS,
    POWER_FAULTS,
    Fault,
)
from tests.chaos.harsh import HarshCluster
from tests.chaos.kill9 import SEGMENT_BYTES, kill_rounds, summary
from tests.chaos.mixed import MixedCluster, MixedHarshCluster, mixed_faults
from tests.chaos.one_of_several import OneOfSeveral
from tests.chaos.power_loss import compile_lying_disk, lose_power_under_load
from tests.chaos.transactions import Run, run_transactions
from tests.chaos.workload import SERVE_ALL, log_figures
from tests.clients.client import java_command
from tests.upgrade.previous_release import why_missing

from mainstem.model.features import OWN_LEVELS
from mainstem.testing.local_cluster import LocalCluster
from mainstem.testing.local_node import LocalNode
from mainstem.testing.server_process import ServerFailed

STATE = ROOT / ".cache" / "chaos"
# Groups begin at once, and there are few partitions to move when nodes come and go.
QUICK = ("--set", "groups.initial_rebalance_delay_ms=100", "--set", "groups.offsets_partitions=6")


@dataclass(frozen=True, slots=True)
class PartResult:
    """What a part did; it passed if it is sound and no rule was broken."""

    words: str
    faults: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, int] = field(default_factory=dict)
    checked: list[Checked] = field(default_factory=list)
    is_sound: bool = True
    remark: str = ""

    @property
    def has_passed(self) -> bool:
        """See above."""
        return self.is_sound and not any(one.anomalies for one in self.checked)


def is_harsh() -> bool:
    """Whether networks and disks can fail here."""
    return os.geteuid() == 0 and shutil.which("ip") is not None


def all_faults() -> dict[str, Fault]:
    """Every fault that can happen here to a cluster of this release."""
    harsh = NETWORK_FAULTS | POWER_FAULTS | DISK_FAULTS if is_harsh() else {}
    return FAULTS | MEMBER_FAULTS | CLIENT_FAULTS | harsh


def kills(target: str, rounds: int, seed: int) -> PartResult:
    """A single server is killed again and again."""
    # Apache Kafka takes no smaller segments than these.
    segment_bytes = SEGMENT_BYTES if target == "mainstem" else 1 << 20
    with _server(target) as server:
        history, once = kill_rounds(server, rounds, seed=seed, segment_bytes=segment_bytes)
    checked = check_log(history, once)
    words = summary(history, checked.anomalies)
    return PartResult(words, {"kill -9 of a single node": rounds}, log_figures(history), [checked])


def transactions(target: str, count: int, seed: int) -> PartResult:
    """Transactions on a single server."""
    with _server(target) as server:
        return _transactional(run_transactions(server, count, seed=seed))


def transactions_of_several(count: int, seed: int) -> PartResult:
    """Transactions on a cluster whose nodes are killed and paused."""
    with LocalCluster() as cluster:
        cluster.wait_for_three_voters()
        run = run_transactions(OneOfSeveral(cluster, seed=seed), count, seed=seed)
    return _transactional(run)


def harsh_transactions(count: int, seed: int) -> PartResult:
    """Transactions on a cluster that also loses its network and its power."""
    if not is_harsh():
        return _left_out("cutting network and power needs root")
    with HarshCluster(arguments=QUICK) as cluster:
        cluster.wait_for_three_voters()
        several = OneOfSeveral(cluster, seed=seed)
        more = several.bound(NETWORK_FAULTS | POWER_FAULTS)
        try:
            run = run_transactions(several, count, seed=seed, more=more)
        except (AssertionError, ServerFailed):
            _keep_logs(cluster, STATE / f"transactions-{seed}")
            raise
        if run.anomalies:
            _keep_logs(cluster, STATE / f"transactions-{seed}")
    return _transactional(run)


def _transactional(run: Run) -> PartResult:
    checked = check_transactions(run.history, run.anomalies)
    return PartResult(run.summary, run.faults, run.figures, checked)


def trouble(count: int, seed: int, only: Mapping[str, Fault] | None = None) -> PartResult:
    """Faults of a cluster under the load of every protocol."""
    if only is not None and not is_harsh():
        return _left_out("these faults need root")
    kind = HarshCluster if is_harsh() else LocalCluster
    with kind(arguments=(*QUICK, *SERVE_ALL)) as nodes:
        return _rounds(nodes, count, seed, only or all_faults(), f"faults-{seed}")


def mixed_versions(count: int, seed: int) -> PartResult:
    """Faults of a cluster whose nodes run the previous release for a while."""
    if missing := why_missing():
        return _left_out(f"the previous release cannot be built: {missing}")
    kind = MixedHarshCluster if is_harsh() else MixedCluster
    with kind(arguments=(*QUICK, *SERVE_ALL)) as nodes:
        nodes.upgrade()
        faults = mixed_faults(is_harsh=is_harsh())
        result = _rounds(nodes, count, seed, faults, f"mixed-{seed}")
        assert nodes.level == OWN_LEVELS[0], "somebody raised the feature level"
    return result


def _rounds(
    nodes: LocalCluster, count: int, seed: int, faults: Mapping[str, Fault], name: str
) -> PartResult:
    without_java = _java_is_missing()
    try:
        run = fault_rounds(nodes, count, seed=seed, faults=faults, with_java=not without_java)
    except (AssertionError, ServerFailed):
        _keep_logs(nodes, STATE / name)
        raise
    if run.anomalies:
        _keep_logs(nodes, STATE / name)
    remarks = [] if is_harsh() else ["neither network nor power was cut, which needs root"]
    remarks += [f"without the Java client: {without_java}"] if without_java else []
    return PartResult(
        f"{dict(run.done)}: {'; '.join([*remarks, run.summary()])}",
        run.done,
        run.histories.figures(),
        run.checked,
        remark="; ".join(remarks),
    )


def lose_power() -> PartResult:
    """A single node loses its power."""
    with tempfile.TemporaryDirectory() as folder:
        loss = lose_power_under_load(Path(folder))
    checked = check_log(loss.history, loss.once)
    return PartResult(
        f"node ended with {loss.status}, {loss.refused} {summary(loss.history, checked.anomalies)}",
        {"power loss of a single node": 1},
        log_figures(loss.history),
        [checked],
        is_sound=bool(loss.status) and not loss.refused,
        remark=loss.refused,
    )


def lie() -> PartResult:
    """Without syncs something must get lost, or the other parts prove nothing."""
    with tempfile.TemporaryDirectory() as folder:
        shim = compile_lying_disk(Path(folder))
        loss = lose_power_under_load(Path(folder), preload=shim)
    is_noticed = bool(loss.anomalies or loss.refused)
    words = f"{len(loss.anomalies)} anomalies, as it must" if is_noticed else "MISSED"
    return PartResult(words, is_sound=is_noticed, remark=words)


def _server(target: str) -> LocalNode | ApacheKafka:
    return LocalNode() if target == "mainstem" else ApacheKafka()


def _left_out(reason: str) -> PartResult:
    return PartResult(f"left out: {reason}", remark=f"left out: {reason}")


def _keep_logs(cluster: LocalCluster, folder: Path) -> None:
    """What every node said, for whoever looks for the cause."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, node in cluster.nodes.items():
        (folder / f"node-{number}.log").write_text(node.log_text())


def _java_is_missing() -> str:
    """Why the Java client cannot take part, if it cannot."""
    try:
        java_command("Load")
    except Unavailable as reason:
        return str(reason)
    return "" if shutil.which("java") else "java is not installed"
