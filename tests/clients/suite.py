"""The long real-client suite: every scenario with every client, at full volume.

Finished pairs are remembered in a state file until all have passed, so that an interrupted run goes
on where it stopped; ``--fresh`` begins again. ``--target kafka``
runs the same against Apache Kafka.
"""

import argparse
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.peers.kafka.peer import ApacheKafka
from bench.peers.maven import ROOT
from tests.chaos.parts import load, save, say
from tests.clients import spark, tools
from tests.clients.client import CLIENTS
from tests.clients.scenarios import SCENARIOS, Scale, Scenario, Scene
from tests.conftest import missing, required

from mainstem.testing.local_node import LocalNode

STATE = ROOT / ".cache" / "clients"
EVERYTHING: dict[str, dict[str, Scenario]] = {
    **dict.fromkeys(CLIENTS, SCENARIOS),
    "console": SCENARIOS | tools.SCENARIOS,
    "spark": spark.SCENARIOS,
}
REDUCED = Scale(messages=2_000, per_codec=200, per_size=2, session_timeout_ms=6_000)


def main() -> int:
    options = _options()
    # The servers run in sessions of their own: a polite end must pass through our clean-up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    state_path = STATE / f"{options.target}{'-reduced' if options.reduced else ''}.json"
    finished = {} if options.fresh else load(state_path)
    chosen = [
        (client, name)
        for client, scenarios in EVERYTHING.items()
        for name in scenarios
        if (not options.client or client in options.client)
        and (not options.scenario or name in options.scenario)
    ]
    failed = []
    skipped = 0
    with _server(options.target) as server, tempfile.TemporaryDirectory() as scratch:
        for client, name in chosen:
            key = f"{client} {name}"
            if key in finished:
                say(f"{'done before':>12}  {key}")
                continue
            if reason := _lacking(client):
                skipped += 1
                say(f"{'skipped':>12}  {key}: {reason}")
                continue
            if server.returncode is not None:
                # A scenario that ended the server has failed; the next one gets its chance.
                server.start()
            scale = REDUCED if options.reduced else Scale()
            scene = Scene(CLIENTS.get(client, CLIENTS["java"]), server, Path(scratch), scale)
            started = time.monotonic()
            problem = _attempt(EVERYTHING[client][name], scene)
            took_s = time.monotonic() - started
            if problem:
                failed.append(key)
                say(f"{'FAILED':>12}  {key} ({took_s:.1f} s)\n{problem}")
                continue
            say(f"{took_s:>10.1f} s  {key}")
            finished[key] = round(took_s, 1)
            save(state_path, finished)
    if not failed and not options.client and not options.scenario:
        # A run that is complete is over; the next one begins again.
        state_path.unlink(missing_ok=True)
    passed = len(chosen) - len(failed) - skipped
    say(f"{passed} of {len(chosen)} passed on {options.target}, {skipped} skipped")
    return 1 if failed else 0


def _lacking(client: str) -> str:
    """Why a client cannot be used here, unless MAINSTEM_REQUIRE says that it must be."""
    needs = CLIENTS[client].needs if client in CLIENTS else spark.NEEDS
    for name in needs:
        if (reason := missing(name)) and name not in required():
            return f"needs {name}: {reason}"
    return ""


def _attempt(scenario: Scenario, scene: Scene) -> str:
    """Why the scenario failed; empty if it passed."""
    try:
        scenario(scene)
    except Exception as error:  # noqa: BLE001 - one failure must not hide the other clients' results
        return f"{type(error).__name__}: {error}"
    return ""


@contextlib.contextmanager
def _server(target: str) -> Iterator[LocalNode | ApacheKafka]:
    with LocalNode() if target == "mainstem" else ApacheKafka() as server:
        yield server


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=("mainstem", "kafka"), default="mainstem")
    parser.add_argument("--fresh", action="store_true", help="forget what has passed before")
    parser.add_argument("--reduced", action="store_true", help="small volumes, short sessions")
    parser.add_argument("--client", action="append", choices=sorted(EVERYTHING))
    parser.add_argument(
        "--scenario", action="append", choices=sorted({n for s in EVERYTHING.values() for n in s})
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
