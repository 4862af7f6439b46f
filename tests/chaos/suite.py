"""The long chaos suite: kill -9, transactions, faults of a cluster, loss of power, each one judged.

Parts that passed are remembered in a state file until all have, so that an interrupted run goes on
where it stopped; ``--fresh`` begins again. ``--target kafka`` lets Apache Kafka be killed instead.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from bench.peers.kafka.peer import ApacheKafka
from bench.peers.maven import ROOT, Unavailable
from tests.chaos.cluster import fault_rounds
from tests.chaos.faults import (
    DISK_FAULTS,
    FAULTS,
    LONG_FAULTS,
    MEMBER_FAULTS,
    NETWORK_FAULTS,
    POWER_FAULTS,
    Fault,
)
from tests.chaos.harsh import HarshCluster
from tests.chaos.kill9 import SEGMENT_BYTES, kill_rounds, summary
from tests.chaos.one_of_several import OneOfSeveral
from tests.chaos.parts import Part, Verdict, run_parts, say
from tests.chaos.power_loss import compile_lying_disk, lose_power_under_load
from tests.chaos.report import add_run, write_page
from tests.chaos.transactions import run_transactions
from tests.chaos.workload import SERVE_ALL
from tests.clients.client import java_command

from mainstem.testing.local_cluster import LocalCluster
from mainstem.testing.local_node import LocalNode
from mainstem.testing.server_process import ServerFailed

STATE = ROOT / ".cache" / "chaos"
JOURNAL = STATE / "runs.jsonl"
REPORT = STATE / "report.md"
TRANSACTIONS_PER_PART = 2_000
FAULTS_PER_PART = 20
# Groups begin at once, and there are few partitions to move when nodes come and go.
QUICK = ("--set", "groups.initial_rebalance_delay_ms=100", "--set", "groups.offsets_partitions=6")


def main() -> int:
    options = _options()
    # Servers and mounts must be cleaned up when the suite is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.fresh:
        JOURNAL.unlink(missing_ok=True)
    return run_parts(parts(options), STATE / f"{options.target}.json", fresh=options.fresh, say=say)


def parts(options: argparse.Namespace) -> dict[str, Part]:
    """What the suite consists of, in order."""
    made: dict[str, Part] = {}
    if options.rounds:
        made[f"kill -9, {options.rounds} rounds, seed {options.seed}"] = partial(
            _kill, options.target, options.rounds, options.seed
        )
    for number in range(-(-options.transactions // TRANSACTIONS_PER_PART)):
        seed = options.seed + number
        count = min(TRANSACTIONS_PER_PART, options.transactions - number * TRANSACTIONS_PER_PART)
        made[f"{count} transactions, seed {seed}"] = partial(
            _transactions, options.target, count, seed
        )
    faults = options.cluster_faults if options.target == "mainstem" else 0
    for number in range(-(-faults // FAULTS_PER_PART)):
        seed = options.seed + number
        count = min(FAULTS_PER_PART, faults - number * FAULTS_PER_PART)
        made[f"{count} faults in a cluster of three, seed {seed}"] = partial(_trouble, count, seed)
    if faults:
        made["faults that last"] = partial(_trouble, len(LONG_FAULTS), options.seed, LONG_FAULTS)
    if options.transactions and options.target == "mainstem":
        made[f"{TRANSACTIONS_PER_PART} transactions in a cluster of three"] = partial(
            _transactions_of_several, TRANSACTIONS_PER_PART, options.seed
        )
    rounds = options.power_rounds if options.target == "mainstem" else 0
    for number in range(rounds):
        made[f"loss of power {number + 1}"] = _lose_power
    if rounds:
        made["a disk that skips syncs"] = _lie
    return made


def _server(target: str) -> LocalNode | ApacheKafka:
    return LocalNode() if target == "mainstem" else ApacheKafka()


def _kill(target: str, rounds: int, seed: int) -> Verdict:
    # Apache Kafka takes no smaller segments than these.
    segment_bytes = SEGMENT_BYTES if target == "mainstem" else 1 << 20
    with _server(target) as server:
        history, anomalies = kill_rounds(server, rounds, seed=seed, segment_bytes=segment_bytes)
    return not anomalies, summary(history, anomalies)


def _transactions(target: str, count: int, seed: int) -> Verdict:
    with _server(target) as server:
        run = run_transactions(server, count, seed=seed)
    return not run.anomalies, run.summary


def _trouble(count: int, seed: int, only: Mapping[str, Fault] | None = None) -> Verdict:
    is_harsh = os.geteuid() == 0 and shutil.which("ip") is not None
    if only is not None and not is_harsh:
        return True, "left out: these faults take root"
    harsh = NETWORK_FAULTS | POWER_FAULTS | DISK_FAULTS
    faults = only or FAULTS | MEMBER_FAULTS | (harsh if is_harsh else {})
    without_java = _java_is_missing()
    kind = HarshCluster if is_harsh else LocalCluster
    began = time.monotonic()
    try:
        with kind(arguments=(*QUICK, *SERVE_ALL)) as nodes:
            try:
                run = fault_rounds(
                    nodes, count, seed=seed, faults=faults, with_java=not without_java
                )
            except (AssertionError, ServerFailed):
                _keep_logs(nodes, STATE / f"faults-{seed}")
                raise
            if run.anomalies:
                _keep_logs(nodes, STATE / f"faults-{seed}")
    except (AssertionError, ServerFailed) as stall:  # the parts that follow are tried all the same
        return False, str(stall)
    remarks = [] if is_harsh else ["neither network nor power was cut, which takes root"]
    remarks += [f"without the Java client: {without_java}"] if without_java else []
    add_run(JOURNAL, run, seed=seed, seconds=time.monotonic() - began)
    say(f"{write_page(JOURNAL, REPORT)}: {REPORT}")
    return not run.anomalies, f"{dict(run.done)}: {'; '.join([*remarks, run.summary()])}"


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


def _transactions_of_several(count: int, seed: int) -> Verdict:
    with LocalCluster() as cluster:
        cluster.wait_for_three_voters()
        run = run_transactions(OneOfSeveral(cluster, seed=seed), count, seed=seed)
    return not run.anomalies, run.summary


def _lose_power() -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        loss = lose_power_under_load(Path(folder))
    is_sound = bool(loss.status) and not (loss.anomalies or loss.refused)
    figures = summary(loss.history, loss.anomalies)
    return is_sound, f"node ended with {loss.status}, {loss.refused} {figures}"


def _lie() -> Verdict:
    """Without syncs something must get lost, or the other parts prove nothing."""
    with tempfile.TemporaryDirectory() as folder:
        shim = compile_lying_disk(Path(folder))
        loss = lose_power_under_load(Path(folder), preload=shim)
    is_noticed = bool(loss.anomalies or loss.refused)
    return is_noticed, f"{len(loss.anomalies)} anomalies, as it must" if is_noticed else "MISSED"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="how often to kill under load")
    parser.add_argument("--transactions", type=int, default=10_000, help="under all faults")
    parser.add_argument(
        "--cluster-faults",
        type=int,
        default=300,
        help="of every kind, in a cluster",
    )
    parser.add_argument("--power-rounds", type=int, default=5, help="how often to cut the power")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=("mainstem", "kafka"), default="mainstem")
    parser.add_argument("--fresh", action="store_true", help="forget what has passed before")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
