"""Rules removed from the product, and the fault by which the simulation notices each.

``python tests/mutants/sim_mutants.py [--known] [part of a name …]`` runs scenarios that have only
that fault, or Raft groups under that fault, one after the other, until a guarantee is violated.
Prints one line of JSON for each. With ``--known`` the seed that is known to notice a mutant comes
first; the others follow, since any change of the product changes what a seed does.
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
RAFT_SEEDS_MAX: Final = 40  # a run of a Raft group costs a tenth of a scenario of nodes


class SimMutant(NamedTuple):
    """One rule, and what shows that it is missing."""

    mutant: Mutant
    fault: str
    seed: int  # known to notice it
    is_raft: bool = False  # noticed by a Raft group alone


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
        1,
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
        3,
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
        7,
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
        4,
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
        1,
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
        8,
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
        3,
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
        11,
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
        1,
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
        1,
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
        1,
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
        2,
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
        5,
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
        7,
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
        "stalled disks",
        1,
        is_raft=True,
    ),
    SimMutant(
        Mutant(
            "a node that hears of no leader starts a term without asking first",
            "raft.stepping",
            "        pre = state.settings.pre_vote\n",
            "        pre = False\n",
            "",
        ),
        "one-way cuts",
        1,
        is_raft=True,
    ),
    SimMutant(
        Mutant(
            "a leader that receives nothing stays leader",
            "raft.stepping",
            "        if state.settings.check_quorum and not state.tracker.quorum_active(",
            "        if False and not state.tracker.quorum_active(",
            "",
        ),
        "one-way cuts",
        1,
        is_raft=True,
    ),
    SimMutant(
        Mutant(
            "a leader answers reads without asking whether it was replaced",
            "raft.reads",
            "    elif state.tracker.voters == (state.id,):\n",
            "    elif state.tracker.voters:\n",
            "",
        ),
        "pauses and partitions",
        7,
        is_raft=True,
    ),
    SimMutant(
        Mutant(
            "time passes for a Raft node as its wall clock says",
            "raft.drivers.node_driver",
            "            self._core.step(message, self._clock.monotonic())\n",
            "            self._core.step(message, self._clock.wall_ms() / 1000)\n",
            "",
        ),
        "clock jumps",
        1,
        is_raft=True,
    ),
    SimMutant(
        Mutant(
            "an entry may be twice as large as the limit",
            "raft.drivers.pending_driver",
            "        if len(data) > self._entry_bytes_max:\n",
            "        if len(data) > 2 * self._entry_bytes_max:\n",
            "",
        ),
        "oversize entries",
        1,
        is_raft=True,
    ),
    SimMutant(
        Mutant(
            "a proposal whose outcome is unknown is answered as refused",
            "raft.drivers.pending_driver",
            '                _settle(waiting[1], OutcomeUnknown("not committed in time"))\n',
            "                _settle(waiting[1], NotLeader(NO_NODE))\n",
            "",
        ),
        "partitions",
        1,
        is_raft=True,
    ),
)


def seeds_of(wanted: SimMutant, *, is_known: bool) -> list[int]:
    """The seeds to run, the known one first or in its place."""
    seeds = list(range(1, (RAFT_SEEDS_MAX if wanted.is_raft else SEEDS_MAX) + 1))
    if is_known:
        return [wanted.seed, *(seed for seed in seeds if seed != wanted.seed)]
    return seeds


def attempt(wanted: SimMutant, seeds: list[int]) -> int | None:
    """Run scenarios against the mutant, in a child; the seed that noticed, None: it survived."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status) or None
    seed = 0
    try:
        sys.meta_path.insert(0, _Changed(wanted.mutant))
        seed = _noticed(wanted, seeds)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(seed)


def _noticed(wanted: SimMutant, seeds: list[int]) -> int:
    # Imported here, in the child, so that the changed source is loaded.
    import logging  # noqa: PLC0415

    logging.disable(logging.CRITICAL)
    run_scenario = _raft_run if wanted.is_raft else _cluster_scenario
    for seed in seeds:
        try:
            run_scenario(seed, wanted.fault)
        except Exception:  # noqa: BLE001 - any exception is a violation
            return seed
    return 0


def _cluster_scenario(seed: int, fault: str) -> None:
    from mainstem.testing.simulation.cluster.simulator import run_seed  # noqa: PLC0415

    run_seed(seed, SCENARIO_S, policy="fsync" if seed % 2 else "written", faults=(fault,))


def _raft_run(seed: int, fault: str) -> None:
    from tests.kit.simulation.raft.fault_run import run_with_faults  # noqa: PLC0415

    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        faults = (*fault.split(" and "), "retried proposals")
        run_with_faults(Path(folder), seed, seconds=RAFT_RUN_S, faults=faults)


def main(wanted: list[str], *, is_known: bool) -> int:
    """Try every mutant whose name contains one of the words; how many survived."""
    survivors = 0
    for each in SIM_MUTANTS:
        if wanted and not any(word in each.mutant.name for word in wanted):
            continue
        begun = time.monotonic()
        is_stale = stale(each.mutant)
        seed = None if is_stale else attempt(each, seeds_of(each, is_known=is_known))
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
    words = sys.argv[1:]
    sys.exit(main([word for word in words if word != "--known"], is_known="--known" in words))
