"""The long chaos suite: rounds of kill -9 and of power loss, each judged by the history checker."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from bench.peers.kafka.peer import ApacheKafka
from tests.chaos.kill9 import SEGMENT_BYTES, kill_rounds, summary
from tests.chaos.power_loss import compile_lying_disk, lose_power_under_load

from mainstem.testing.local_node import LocalNode


def main() -> int:
    options = _options()
    # Servers and mounts must be cleaned up when the suite is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failures = 0
    with LocalNode() if options.target == "mainstem" else ApacheKafka() as server:
        # Apache Kafka takes no smaller segments than these.
        segment_bytes = SEGMENT_BYTES if options.target == "mainstem" else 1 << 20
        history, anomalies = kill_rounds(
            server, options.rounds, seed=options.seed, segment_bytes=segment_bytes
        )
    failures += bool(anomalies)
    _say(f"kill -9, {options.rounds} rounds: {summary(history, anomalies)}")
    rounds = options.power_rounds if options.target == "mainstem" else 0
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            loss = lose_power_under_load(Path(folder))
        bad = bool(loss.anomalies or loss.refused or not loss.status)
        failures += bad
        _say(
            f"power loss {number + 1}: node ended with {loss.status}, {loss.refused} "
            f"{summary(loss.history, loss.anomalies)}"
        )
    if rounds:
        with tempfile.TemporaryDirectory() as folder:
            shim = compile_lying_disk(Path(folder))
            loss = lose_power_under_load(Path(folder), preload=shim)
        survived = not (loss.anomalies or loss.refused)
        failures += survived
        verdict = "NOT NOTICED" if survived else f"{len(loss.anomalies)} anomalies, as it must"
        _say(f"a disk that skips syncs: {verdict}")
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="how often to kill the node")
    parser.add_argument("--power-rounds", type=int, default=5, help="how often to cut the power")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=("mainstem", "kafka"), default="mainstem")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
