"""Running the loaders against a server while its costs are measured."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from bench.figures import Figure
from bench.measure import Cost, costs
from bench.sides import Side

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "bench"
LOAD_TIMEOUT_S = 900
MEGABYTE = 1_000_000
# 60 KB batches of 100 B messages, as the targets say.
BATCHING = ("p.batch.size=61440", "p.linger.ms=20")
# A load that writes much comes in slices, each with its memory made present right before it.
SLICE_BYTES = 300_000_000


def build_rdload() -> Path:
    """The librdkafka loader, compiled when its source is newer."""
    source = Path(__file__).parent / "loaders" / "rdload.c"
    binary = CACHE / "rdload"
    if binary.exists() and binary.stat().st_mtime > source.stat().st_mtime:
        return binary
    if shutil.which("cc") is None:
        raise SystemExit("the loader needs a C compiler and Debian's librdkafka-dev")
    CACHE.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-O2", "-Wall", "-o", str(binary), str(source), "-lrdkafka", "-lpthread"]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit("the loader did not compile; Debian's librdkafka-dev has what it needs")
    return binary


Run = tuple[dict[str, float], Cost]


def rdload(side: Side, mode: str, topic: str, *words: object) -> Run:
    """A load through librdkafka: what it says, and what it cost the server."""
    command = [str(build_rdload()), mode, side.address, topic, *map(str, words)]
    return _measured(side, command)


def raw(side: Side, mode: str, topic: str, *words: object) -> Run:
    """A load through a bare socket: what it says, and what it cost the server."""
    return _measured(side, raw_command(mode, side.address, topic, *map(str, words)))


def raw_command(*words: str) -> list[str]:
    """The command line of the bare loader."""
    return [sys.executable, "-m", "bench.loaders.raw", *words]


def _measured(side: Side, command: list[str]) -> Run:
    with costs(side.server.pid) as cost:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False
        )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} on {side.title}: {done.stderr[-800:]}")
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result, cost


def slices(megabytes: int) -> list[int]:
    """A volume in pieces for which memory can be made present."""
    whole, rest = divmod(megabytes, SLICE_BYTES // MEGABYTE)
    return [SLICE_BYTES // MEGABYTE] * whole + ([rest] if rest else [])


def joined(runs: list[Run]) -> Run:
    """Several runs of one load as one."""
    results = [result for result, _ in runs]
    cost = Cost(
        cpu_s=sum(cost.cpu_s for _, cost in runs),
        wall_s=sum(cost.wall_s for _, cost in runs),
        rss_max_bytes=max(cost.rss_max_bytes for _, cost in runs),
    )
    return {name: sum(result[name] for result in results) for name in results[0]}, cost


def per_message(result: dict[str, float], cost: Cost, *, scale: float) -> Figure:
    """Processor time of the server for each message."""
    count = result["messages"]
    beside = {"rate": count / result["seconds"], "rss_mb": cost.rss_max_bytes / 1e6}
    if "client_cpu_s" in result:
        beside["client_cpu"] = result["client_cpu_s"] * scale / count
    return Figure(cost.cpu_s * scale / count, beside)
