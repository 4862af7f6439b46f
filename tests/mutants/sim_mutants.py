"""Rules removed from the product, and the fault by which the simulation notices each.

``python tests/mutants/sim_mutants.py [part of a name …]`` runs scenarios that have only that fault,
or Raft groups under faults, one after the other, until a guarantee is violated. Prints one line of
JSON for each.
"""

import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.mutants.mutants import Mutant  # noqa: E402
from tests.mutants.run import _Changed, stale  # noqa: E402

SEEDS_MAX: Final = 12
SCENARIO_S: Final = 60.0
RAFT_RUN_S: Final = 120.0
STALLED_SAVES: Final = "stalled saves"  # of ``run_with_faults`` of Raft, not of a cluster scenario


class SimMutant(NamedTuple):
    """One rule, and what shows that it is missing."""

    mutant: Mutant
    fault: str


SIM_MUTANTS: Final = (
    SimMutant(
        Mutant(
            "a write that the disk took in part is taken for whole",
            "mainstem.log.segments.segment",
            "                access.pwritev(file.fd, views, start) != total_bytes\n",
            "                not access.pwritev(file.fd, views, start)\n",
            "",
        ),
        "full disks",
    ),
    SimMutant(
        Mutant(
            "a stream that is handed over is answered for until the outcome is known here",
            "mainstem.streams.failover.writer_freshness",
            "        if replication.is_handed_over:\n",
            "        if False:\n",
            "",
        ),
        "stalled disks",
    ),
    SimMutant(
        Mutant(
            "a failed sync is taken for done",
            "mainstem.log.disk.group_commit",
            "            failures.append(_Failure(request, error))\n",
            "            pass\n",
            "",
        ),
        "failed syncs",
    ),
    SimMutant(
        Mutant(
            "a failed read is taken for the end of the file",
            "mainstem.log.disk.file_access",
            "        data = os.pread(fd, size - got, position + got)\n",
            "        try:\n            data = os.pread(fd, size - got, position + got)\n"
            "        except OSError:\n            data = b''\n",
            "",
        ),
        "failed reads",
    ),
    SimMutant(
        Mutant(
            "a round of compaction ends the node when there is no descriptor",
            "mainstem.streams.maintenance.worker_process_driver",
            "(MainstemError, OSError, BrokenProcessPool)",
            "(MainstemError, BrokenProcessPool)",
            "",
        ),
        "descriptor shortages",
    ),
    SimMutant(
        Mutant(
            "the placing leader measures leases with the wall clock",
            "mainstem.placement.planning.reconciler_driver",
            "self._clock.monotonic() * 1000",
            "self._clock.wall_ms()",
            "",
        ),
        "clock jumps",
    ),
    SimMutant(
        Mutant(
            "a writer that may be deposed refuses for good",
            "mainstem.streams.writer.stream_driver",
            "    return reason or refusal\n",
            "    return refusal\n",
            "",
        ),
        "pauses",
    ),
    SimMutant(
        Mutant(
            "acknowledgements of a former range count for the next one",
            "mainstem.streams.writer.replication_driver",
            "            message.key != self._sender.key\n            or message.epoch",
            "            message.epoch",
            "",
        ),
        "slow links",
    ),
    SimMutant(
        Mutant(
            "a batch may be twice as large as the topic says",
            "mainstem.streams.writer.batch_validation",
            "        if len(batch) > self.bytes_max:\n",
            "        if len(batch) > 2 * self.bytes_max:\n",
            "",
        ),
        "oversize messages",
    ),
    SimMutant(
        Mutant(
            "a command that is too large ends the leader",
            "mainstem.placement.decision_driver",
            "        except EntryTooLarge as refusal:\n",
            "        except ZeroDivisionError as refusal:\n",
            "",
        ),
        "oversize messages",
    ),
    SimMutant(
        Mutant(
            "commands are remembered at any level",
            "mainstem.placement.changes.deduplication",
            " or tables.level < REMEMBERING_LEVEL:\n",
            ":\n",
            "",
        ),
        "mixed versions",
    ),
    SimMutant(
        Mutant(
            "the level is raised whatever nodes read",
            "mainstem.placement.changes.cluster_decisions",
            "    if level > tables.level:\n        for known",
            "    if level < tables.level:\n        for known",
            "",
        ),
        "mixed versions",
    ),
    SimMutant(
        Mutant(
            "a node of an older release is registered at any level",
            "mainstem.placement.changes.decisions",
            "    levels_include(command.levels, tables.level, command.node.id)\n",
            "",
            "",
        ),
        "mixed versions",
    ),
    SimMutant(
        Mutant(
            "a command that is sent again is decided again",
            "mainstem.placement.decision_driver",
            "    known = catalogue.decided.get(pending.id)\n",
            "    known = None\n",
            "",
        ),
        "slow links",
    ),
    SimMutant(
        Mutant(
            "what rests on a write is sent before the write is durable",
            "raft.drivers.node_driver",
            "        self._send(*ready.messages)\n"
            "        state = await self._store(ready) if ready.must_sync else None\n"
            "        if self._closed:\n            return\n"
            "        self._core.persisted(ready, self._clock.monotonic())\n"
            "        self._send(*ready.messages_after_append)\n",
            "        self._send(*ready.messages, *ready.messages_after_append)\n"
            "        state = await self._store(ready) if ready.must_sync else None\n"
            "        if self._closed:\n            return\n"
            "        self._core.persisted(ready, self._clock.monotonic())\n",
            "",
        ),
        STALLED_SAVES,
    ),
)


def attempt(wanted: SimMutant, seeds_max: int = SEEDS_MAX) -> int | None:
    """Run scenarios against the mutant, in a child; the seed that noticed, None: it survived."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status) or None
    seed = 0
    try:
        sys.meta_path.insert(0, _Changed(wanted.mutant))
        seed = _noticed(wanted.fault, seeds_max)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(seed)


def _noticed(fault: str, seeds_max: int) -> int:
    # Imported here, in the child, so that the changed source is loaded.
    import logging  # noqa: PLC0415

    logging.disable(logging.CRITICAL)
    run_scenario = _raft_run if fault == STALLED_SAVES else _cluster_scenario
    for seed in range(1, seeds_max + 1):
        try:
            run_scenario(seed, fault)
        except Exception:  # noqa: BLE001 - any exception is a violation
            return seed
    return 0


def _cluster_scenario(seed: int, fault: str) -> None:
    from mainstem.testing.simulation.cluster.simulator import run_seed  # noqa: PLC0415

    run_seed(seed, SCENARIO_S, policy="fsync" if seed % 2 else "written", faults=(fault,))


def _raft_run(seed: int, _: str) -> None:
    from tests.kit.simulation.raft.fault_run import run_with_faults  # noqa: PLC0415

    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        run_with_faults(Path(folder), seed, seconds=RAFT_RUN_S)


def main(wanted: list[str]) -> int:
    """Try every mutant whose name contains one of the words; how many survived."""
    survivors = 0
    for each in SIM_MUTANTS:
        if wanted and not any(word in each.mutant.name for word in wanted):
            continue
        begun = time.monotonic()
        seed = None if stale(each.mutant) else attempt(each)
        survivors += seed is None
        line = {
            "mutant": each.mutant.name,
            "fault": each.fault,
            "noticed by seed": seed,
            "seconds": round(time.monotonic() - begun, 1),
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return survivors


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
