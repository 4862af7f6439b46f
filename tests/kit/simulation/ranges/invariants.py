"""Invariants of ``simulator`` after every action: the oracles of ``state``, checked on disks."""

from typing import TYPE_CHECKING

from tests.kit.range_checker.state import Oracle

from mainstem.model.ids import Offset, RangeIndex
from mainstem.model.metadata import Range

if TYPE_CHECKING:
    from tests.kit.simulation.ranges.simulator import RangeSimulator


class InvariantViolated(AssertionError):
    """An oracle was violated."""

    def __init__(self, oracle: Oracle, what: str) -> None:
        super().__init__(f"{oracle.name}: {what}")
        self.oracle = oracle


def check(sim: "RangeSimulator") -> None:
    """Check the disks and what was acknowledged to clients."""
    for one in sim.catalogue.ranges:
        _check_divergence(sim, one)
        acked = [o for o, (index, _) in sim.acked.items() if index == one.index]
        if one.suspect and one.end is not None:
            _forget_lost(sim, one.index, one.end)
            continue
        safe_until = max(acked, default=one.start - 1) + 1
        _check_visible(sim, one, safe_until)
        if one.end is not None and safe_until > one.end:
            raise InvariantViolated(Oracle.ACKED_LOST, f"{safe_until} acked, sealed at {one.end}")
        is_whole = one.end is not None and one.index not in sim.lone
        _check_durability(sim, one, one.end or 0 if is_whole else safe_until)
    _check_done(sim)


def _forget_lost(sim: "RangeSimulator", index: RangeIndex, end: Offset) -> None:
    """Remove acknowledged records beyond the end of a suspect range: it reports their loss."""
    lost = [o for o, (acked_in, _) in sim.acked.items() if acked_in == index and o >= end]
    for offset in lost:
        del sim.acked[offset]


def _check_divergence(sim: "RangeSimulator", one: Range) -> None:
    held = [node.values(one.index) for node in sim.nodes.values()]
    longest = max(held, key=len)
    for values in held:
        if longest[: len(values)] != values:
            raise InvariantViolated(Oracle.DIVERGENCE, f"{values} and {longest}")
    for offset, (index, value) in sim.acked.items():
        at = offset - one.start
        if index == one.index and at < len(longest) and longest[at] != value:
            raise InvariantViolated(Oracle.DIVERGENCE, f"offset {offset} was {value}: {longest}")


def _check_visible(sim: "RangeSimulator", one: Range, safe_until: int) -> None:
    """Check that replicas show only acknowledged records, unless the range is sealed."""
    for node in sim.nodes.values():
        seen = node.visible_until(one.index)
        limit = safe_until if one.end is None else max(safe_until, one.end)
        assert seen is None or seen <= limit, f"node {node.name} shows {seen}, {limit} is committed"


def _check_durability(sim: "RangeSimulator", one: Range, safe_until: int) -> None:
    """Check that acknowledged and sealed records are on A disks, less those that were lost."""
    unsynced = sim.settings.acks_unsynced
    losses = sim.lost_disks + (sim.power_losses if unsynced else 0)
    policy = sim.policy(one.replicas)
    if losses > policy.losses_tolerated:
        return
    count = safe_until - one.start
    held = [sim.nodes[name] for name in one.replicas]
    copies = sum(
        (len(node.values(one.index)) if unsynced else node.synced(one.index)) >= count
        for node in held
    )
    if copies < policy.acks - losses:
        raise InvariantViolated(
            Oracle.DURABILITY, f"{safe_until} of {one.index} is on {copies} disks"
        )


def _check_done(sim: "RangeSimulator") -> None:
    for index, name, directory in sim.catalogue.done:
        one = sim.catalogue.range_of(index)
        node = sim.nodes[name]
        assert one.end is not None
        if node.directory == directory and node.synced(index) < one.end - one.start:
            raise InvariantViolated(
                Oracle.SYNCED_COPIES, f"node {name} is not done with range {index}"
            )
