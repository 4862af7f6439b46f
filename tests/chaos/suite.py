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
from functools import partial
from pathlib import Path

from bench.peers.kafka.peer import ApacheKafka
from bench.peers.maven import ROOT
from tests.chaos.cluster import FAULTS, NETWORK_FAULTS, POWER_FAULTS, fault_rounds
from tests.chaos.kill9 import SEGMENT_BYTES, kill_rounds, summary
from tests.chaos.network import NetworkCluster
from tests.chaos.one_of_several import OneOfSeveral
from tests.chaos.parts import Part, Verdict, run_parts, say
from tests.chaos.power_loss import compile_lying_disk, lose_power_under_load
from tests.chaos.powered import PoweredCluster
from tests.chaos.transactions import run_transactions

from mainstem.testing.local_cluster import LocalCluster
from mainstem.testing.local_node import LocalNode

STATE = ROOT / ".cache" / "chaos"
TRANSACTIONS_PER_PART = 2_000
FAULTS_PER_PART = 20


def main() -> int:
    options = _options()
    # Servers and mounts must be cleaned up when the suite is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
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
    if options.transactions and options.target == "mainstem":
        made[f"{TRANSACTIONS_PER_PART} transactions in a cluster of three"] = partial(
            _transactions_of_several, TRANSACTIONS_PER_PART, options.seed
        )
    rounds = options.power_rounds if options.target == "mainstem" else 0
    for number in range(rounds):
        made[f"loss of power {number + 1}"] = _lose_power
    if rounds:
        made["a disk that skips syncs"] = _lie
        made[f"{2 * rounds} losses of power in a cluster of three"] = partial(
            _lose_power_in_cluster, 2 * rounds, options.seed
        )
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


def _trouble(count: int, seed: int) -> Verdict:
    has_network = os.geteuid() == 0 and shutil.which("ip") is not None
    faults = FAULTS | NETWORK_FAULTS if has_network else FAULTS
    with NetworkCluster() if has_network else LocalCluster() as cluster:
        history, anomalies, done = fault_rounds(cluster, count, seed=seed, faults=faults)
    return not anomalies, f"{dict(done)}: {summary(history, anomalies)}"


def _transactions_of_several(count: int, seed: int) -> Verdict:
    with LocalCluster() as cluster:
        cluster.until_three_vote()
        run = run_transactions(OneOfSeveral(cluster, seed=seed), count, seed=seed)
    return not run.anomalies, run.summary


def _lose_power() -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        loss = lose_power_under_load(Path(folder))
    is_sound = bool(loss.status) and not (loss.anomalies or loss.refused)
    figures = summary(loss.history, loss.anomalies)
    return is_sound, f"node ended with {loss.status}, {loss.refused} {figures}"


def _lose_power_in_cluster(count: int, seed: int) -> Verdict:
    with PoweredCluster() as cluster:
        history, anomalies, done = fault_rounds(cluster, count, seed=seed, faults=POWER_FAULTS)
    return not anomalies, f"{dict(done)}: {summary(history, anomalies)}"


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
        "--cluster-faults", type=int, default=200, help="kills, pauses and restarts of nodes"
    )
    parser.add_argument("--power-rounds", type=int, default=5, help="how often to cut the power")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=("mainstem", "kafka"), default="mainstem")
    parser.add_argument("--fresh", action="store_true", help="forget what has passed before")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
