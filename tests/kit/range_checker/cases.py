"""Cases of the model checker: the protocol is sound, and every rule is necessary.

Sound cases have no violation. Each broken case lacks a single rule, which shows that the rule is
needed and that the checker detects its absence. ``python -m tests.kit.range_checker.cases``
searches all of them and prints the trace of every violation; with names, only those.
"""

import sys

from msgspec import Struct
from tests.kit.range_checker.search import RangeSearchResult, search
from tests.kit.range_checker.state import Bounds, DropRule, EndRule, Oracle, RangeRules


class ModelCase(Struct, frozen=True):
    """Bounds, rules, and the expected result of a search. ``large``: takes more than seconds."""

    name: str
    bounds: Bounds
    rules: RangeRules = RangeRules()
    expected: Oracle | None = None
    large: bool = False

    def run(self) -> RangeSearchResult:
        """Search the state space."""
        return search(self.bounds, self.rules)


_ONE = Bounds(records=1)
_POWER = Bounds(records=1, power_losses=1)
_WRITTEN = Bounds(records=1, power_losses=1, written=True)
_DROPS = Bounds(records=1, writers=1, power_losses=1, drops=1, written=True)
_HANDED_OVER = Bounds(replicas=2, acks=1, ranges=2, hand_overs=True, records=1)
# Fewer copies than A are enough for what was acknowledged, not for what readers see afterwards.
_LONE = Bounds(replicas=2, records=1, lost_disks=1, recovered_count=False)

SOUND = (
    ModelCase("2 of 3", Bounds()),
    ModelCase("2 of 3, the largest answer ends the range", _ONE, RangeRules(end=EndRule.LARGEST)),
    ModelCase("3 of 3", Bounds(acks=3, records=1)),
    ModelCase("1 of 2", Bounds(replicas=2, acks=1)),
    ModelCase("2 of 2", Bounds(replicas=2)),
    ModelCase("1 of 1", Bounds(replicas=1, acks=1, writers=3)),
    ModelCase("2 of 2, three writers", Bounds(replicas=2, writers=3, records=1)),
    ModelCase("2 of 3, a destroyed disk", Bounds(records=1, lost_disks=1)),
    ModelCase("2 of 3, synced, a power loss", _POWER),
    ModelCase("2 of 3, written, a power loss", _WRITTEN),
    ModelCase("1 of 1, written, a power loss", _WRITTEN._replace(replicas=1, acks=1)),
    ModelCase(
        "2 of 3, synced, the fence answers with what is synced",
        _POWER,
        RangeRules(fence_syncs=False),
    ),
    ModelCase(
        "2 of 3, synced, late answers after a syncing fence",
        _POWER,
        RangeRules(acks_after_promise=True),
    ),
    ModelCase(
        "2 of 2, a lone copy and a destroyed disk", _LONE, RangeRules(one_copy_is_enough=True)
    ),
    ModelCase("2 of 3, written, replicas are dropped after the seal", _DROPS),
    ModelCase(
        "2 of 3, two writers, replicas are dropped after the seal", Bounds(records=1, drops=1)
    ),
    ModelCase("2 of 3, written, drops and a destroyed disk", _DROPS._replace(lost_disks=1)),
    ModelCase("2 of 2, a chain of two ranges", Bounds(replicas=2, ranges=2, records=1)),
    ModelCase("1 of 2, a chain with hand-over", _HANDED_OVER),
    ModelCase("2 of 3, three writers", Bounds(writers=3, records=1), large=True),
    ModelCase("2 of 2, three writers, two records", Bounds(writers=3, replicas=2), large=True),
    ModelCase(
        "2 of 3, a chain with hand-over", Bounds(ranges=2, records=1, hand_overs=True), large=True
    ),
    ModelCase("2 of 3, written, two power losses", _WRITTEN._replace(power_losses=2), large=True),
    ModelCase("2 of 3, two records, a destroyed disk", Bounds(lost_disks=1), large=True),
    ModelCase("2 of 3, two records, synced, a power loss", Bounds(power_losses=1), large=True),
    ModelCase("2 of 3, written, two writers, drops", _DROPS._replace(writers=2), large=True),
    ModelCase("3 of 5", Bounds(replicas=5, acks=3, records=1), large=True),
)

BROKEN = (
    ModelCase(
        "the end is the A-th largest of all answers",
        _ONE, RangeRules(end=EndRule.NAIVE), Oracle.ACKED_LOST,
    ),
    ModelCase(
        "the fence only reads",
        _ONE, RangeRules(fence_promises=False), Oracle.ACKED_LOST,
    ),
    ModelCase(
        "one fence answer is enough and nothing is copied",
        _ONE, RangeRules(one_answer_is_enough=True, copies_before_seal=False), Oracle.ACKED_LOST,
    ),
    ModelCase(
        "one fence answer is enough",
        _ONE, RangeRules(one_answer_is_enough=True), Oracle.ACKED_LOST,
    ),
    ModelCase(
        "acknowledgements go on while the seal is under way",
        Bounds(), RangeRules(freezes=False), Oracle.ACKED_LOST,
    ),
    ModelCase(
        "the writer goes on when the catalogue does not answer in time",
        Bounds(), RangeRules(unfreezes_on_timeout=True), Oracle.ACKED_LOST,
    ),
    ModelCase(
        "nothing is copied before the seal, a destroyed disk",
        Bounds(records=1, lost_disks=1), RangeRules(copies_before_seal=False), Oracle.DURABILITY,
    ),
    ModelCase(
        "one copy is enough, a destroyed disk",
        _LONE._replace(recovered_count=True), RangeRules(one_copy_is_enough=True),
        Oracle.DURABILITY,
    ),
    ModelCase(
        "a restarted writer takes its old epoch",
        Bounds(), RangeRules(restart_takes_new_epoch=False), Oracle.DIVERGENCE,
    ),
    ModelCase(
        "written is acknowledged and a power loss leaves no doubt",
        _WRITTEN, RangeRules(limbo=False), Oracle.ACKED_LOST,
    ),
    ModelCase(
        "promises are not synced, a power loss",
        _POWER, RangeRules(promise_is_synced=False), Oracle.ACK_BEYOND_SEAL,
    ),
    ModelCase(
        "a sync that ends after the fence still answers the old writer",
        _POWER, RangeRules(fence_syncs=False, acks_after_promise=True), Oracle.ACK_BEYOND_SEAL,
    ),
    ModelCase(
        "the catalogue does not look at the epoch",
        Bounds(replicas=2, ranges=2, records=1), RangeRules(catalogue_checks_epoch=False),
        Oracle.DEPOSED_WRITER,
    ),
    ModelCase(
        "a blank disk counts as the one it replaced",
        Bounds(records=1, lost_disks=1), RangeRules(blank_disk_is_lost=False), Oracle.ACKED_LOST,
    ),
    ModelCase(
        "the only replica lost its tail without a report",
        _WRITTEN._replace(replicas=1, acks=1), RangeRules(announces_suspect=False),
        Oracle.ACKED_LOST,
    ),
    ModelCase(
        "a written copy is listed as done",
        _DROPS, RangeRules(done_means_synced=False), Oracle.SYNCED_COPIES,
    ),
    ModelCase(
        "replicas are dropped as soon as the range is sealed",
        _DROPS, RangeRules(drop=DropRule.AT_ONCE), Oracle.SYNCED_COPIES,
    ),
    ModelCase(
        "the replica that is dropped counts among the done",
        _DROPS, RangeRules(drop=DropRule.ITSELF_COUNTS), Oracle.SYNCED_COPIES,
    ),
)  # fmt: skip


def main(names: list[str]) -> int:
    """Search all cases, or those whose name contains one of ``names``; 1 if one is unexpected."""
    unexpected_count = 0
    for case in SOUND + BROKEN:
        if names and not any(name in case.name for name in names):
            continue
        found = case.run()
        outcome = "nothing" if found.violation is None else found.violation.name
        unexpected = found.violation is not case.expected
        unexpected_count += unexpected
        mark = "  UNEXPECTED" if unexpected else ""
        sys.stdout.write(f"{case.name:62s} {found.states:>9,d} states  {outcome}{mark}\n")
        for number, step in enumerate(found.trace, start=1):
            sys.stdout.write(f"    {number:2d}. {step}\n")
        sys.stdout.flush()
    return 1 if unexpected_count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
