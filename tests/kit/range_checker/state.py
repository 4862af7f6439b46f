"""State of the range protocol model that the model checker searches.

One stream, a catalogue, R replicas and a few writers that follow each other. The first writer is
elected and writes; each later one is elected at any moment, fences, copies, seals and goes on.
Every call between them is one atomic step of the receiver whose answer may come late or never, so
that all orders, losses and repetitions of messages are covered. A record is the number of the
writer that assigned it, so that two different records at one offset can be distinguished.

``Bounds`` sets the size of the model, ``RangeRules`` which rule is broken; its defaults are the
protocol. States are plain tuples. Replicas are interchangeable, therefore everything that
belongs to one is in one tuple and ``canonical`` sorts them: states that differ only in the names
of replicas are equal.
"""

from enum import Enum
from typing import NamedTuple

Records = tuple[int, ...]

# Phases of a writer.
IDLE = "idle"
WRITING = "writing"
SEALING = "sealing"  # frozen: a request is under way, nothing is acknowledged
FENCING = "fencing"
COPYING = "copying"
GONE = "gone"  # deposed, or nothing left to do

NOT_ANSWERED = -1


class Oracle(Enum):
    """Conditions that must not occur in any state."""

    ACKED_LOST = "acknowledged records are missing from the sealed range"
    ACK_BEYOND_SEAL = "a record beyond the sealed end was acknowledged"
    DIVERGENCE = "two replicas hold different records at one offset"
    DURABILITY = "committed records are on no remaining replica"
    SYNCED_COPIES = "a replica was dropped while too few others had the sealed range on disk"
    DEPOSED_WRITER = "a deposed writer opened a range"


class EndRule(Enum):
    """Rule by which a new writer determines the end of the range it recovers."""

    COUNTED = "the (A-(R-k))-th largest of k answers"
    LARGEST = "the largest answer"
    NAIVE = "the A-th largest of all answers"


class DropRule(Enum):
    """Condition for dropping a replica of a sealed range."""

    OTHERS_DONE = "A others are done"
    ITSELF_COUNTS = "A are done, including the dropped one"
    AT_ONCE = "the range is sealed"


class Bounds(NamedTuple):
    """Size of the model."""

    replicas: int = 3
    acks: int = 2
    writers: int = 2
    records: int = 2
    ranges: int = 1
    written: bool = False  # acknowledged when written, not when synced
    active_seals: bool = True
    hand_overs: bool = False
    recovered_count: bool = (
        True  # records that were not acknowledged count as committed once sealed
    )
    power_losses: int = 0
    lost_disks: int = 0
    drops: int = 0

    @property
    def fence_answers(self) -> int:
        """How many clean answers a new writer needs."""
        return self.replicas - self.acks + 1

    @property
    def syncs_apart(self) -> bool:
        """Whether writing and syncing are two steps; without power losses they are equivalent."""
        return self.written or self.power_losses > 0 or self.drops > 0


class RangeRules(NamedTuple):
    """The rules of the protocol; every field that differs from its default breaks one of them."""

    end: EndRule = EndRule.COUNTED
    one_answer_is_enough: bool = False
    fence_promises: bool = True
    fence_syncs: bool = True  # and the answer covers all that was written
    promise_is_synced: bool = True
    acks_after_promise: bool = False  # to a writer that has been fenced meanwhile
    copies_before_seal: bool = True
    one_copy_is_enough: bool = False
    freezes: bool = True
    unfreezes_on_timeout: bool = False
    catalogue_checks_epoch: bool = True
    restart_takes_new_epoch: bool = True
    limbo: bool = True
    announces_suspect: bool = True
    blank_disk_is_lost: bool = True
    done_means_synced: bool = True
    drop: DropRule = DropRule.OTHERS_DONE


class HeldRange(NamedTuple):
    """One range on one replica. Not ``clean``: it may have lost acknowledged records."""

    promised: int = 0
    log: Records = ()
    synced: int = 0
    clean: bool = True
    done: bool = False
    kept: bool = True


class Link(NamedTuple):
    """Messages in flight between one writer and one replica, for the writer's current range.

    ``sent`` is the highest acknowledgement that left the replica, ``acked`` what arrived.
    """

    sent: int = 0
    acked: int = 0
    answered: int = NOT_ANSWERED
    counts: bool = False
    copied: bool = False
    claimed: bool = False  # named as done in the writer's request


class Replica(NamedTuple):
    """One disk and its connections to all writers."""

    alive: bool
    held: tuple[HeldRange, ...]
    links: tuple[Link, ...]


class Writer(NamedTuple):
    """``log`` is what it assigned or recovered in its range; ``end`` where it seals it."""

    phase: str = IDLE
    epoch: int = 0
    range_index: int = 0
    log: Records = ()
    end: int = 0
    suspect: bool = False
    life: int = 0


class Sealed(NamedTuple):
    """A range as sealed by the catalogue, which never changes."""

    records: Records
    writer: int
    suspect: bool
    handed_over: bool = False


class Seal(NamedTuple):
    """A request in flight to the catalogue; it may arrive at any time, or never."""

    writer: int
    epoch: int
    range_index: int
    records: Records
    suspect: bool
    hands_over: bool = False


class RangeModelState(NamedTuple):
    """The whole state. ``acked``: what was acknowledged to clients, per range."""

    epoch: int
    sealed: tuple[Sealed, ...]
    deposed_opened: bool
    replicas: tuple[Replica, ...]
    writers: tuple[Writer, ...]
    seals: tuple[Seal, ...]
    acked: tuple[Records, ...]
    power_losses: int
    lost_disks: int
    drops: int


def first(bounds: Bounds) -> RangeModelState:
    """The initial state: the first writer is elected."""
    replica = Replica(
        alive=True, held=(HeldRange(),) * bounds.ranges, links=(Link(),) * bounds.writers
    )
    return RangeModelState(
        epoch=1,
        sealed=(),
        deposed_opened=False,
        replicas=(replica,) * bounds.replicas,
        writers=(Writer(WRITING, 1), *(Writer(),) * (bounds.writers - 1)),
        seals=(),
        acked=((),) * bounds.ranges,
        power_losses=bounds.power_losses,
        lost_disks=bounds.lost_disks,
        drops=bounds.drops,
    )


def canonical(state: RangeModelState) -> RangeModelState:
    """The same state with its replicas in a fixed order."""
    return state._replace(replicas=tuple(sorted(state.replicas)))


def start_of(state: RangeModelState, range_index: int) -> int:
    """The first offset of a range."""
    return sum(len(sealed.records) for sealed in state.sealed[:range_index])


def successor_writer_of(state: RangeModelState, writer: Writer, bounds: Bounds) -> int | None:
    """The next writer to be elected, if a range is left for it."""
    has_space = writer.epoch < len(state.writers) and writer.range_index + 1 < bounds.ranges
    return writer.epoch if has_space else None


def _put(items: tuple[Writer, ...], at: int, item: Writer) -> tuple[Writer, ...]:
    return (*items[:at], item, *items[at + 1 :])


def with_writer(
    state: RangeModelState, number: int, writer: Writer, **changes: object
) -> RangeModelState:
    """The state with one writer changed."""
    changed = writer._replace(**changes)  # type: ignore[arg-type]
    return state._replace(writers=_put(state.writers, number, changed))


def gone(state: RangeModelState, number: int) -> RangeModelState:
    """Clear the state of a finished writer, which reduces the number of states."""
    replicas = tuple(linked(replica, number, Link()) for replica in state.replicas)
    return state._replace(replicas=replicas, writers=_put(state.writers, number, Writer(GONE)))


def with_replica(state: RangeModelState, at: int, replica: Replica) -> RangeModelState:
    """The state with one replica changed."""
    replicas = state.replicas
    return state._replace(replicas=(*replicas[:at], replica, *replicas[at + 1 :]))


def holding(replica: Replica, index: int, held: HeldRange) -> Replica:
    """The replica with one of its ranges changed."""
    return replica._replace(held=(*replica.held[:index], held, *replica.held[index + 1 :]))


def linked(replica: Replica, number: int, link: Link) -> Replica:
    """The replica with its connection to one writer changed."""
    return replica._replace(links=(*replica.links[:number], link, *replica.links[number + 1 :]))


def violation(state: RangeModelState, bounds: Bounds) -> Oracle | None:
    """The first oracle that this state violates."""
    if state.deposed_opened:
        return Oracle.DEPOSED_WRITER
    for index in range(bounds.ranges):
        found = _range_violation(state, bounds, index)
        if found is not None:
            return found
    return None


def _range_violation(state: RangeModelState, bounds: Bounds, index: int) -> Oracle | None:
    acked = state.acked[index]
    safe = acked
    if index < len(state.sealed):
        sealed = state.sealed[index]
        if sealed.suspect:
            return None  # reported as suspect: records may be missing
        if sealed.records[: len(acked)] != acked:
            return Oracle.ACKED_LOST
        if bounds.recovered_count:
            safe = sealed.records
        if _dropped_too_early(state, bounds, index):
            return Oracle.SYNCED_COPIES
    if _diverges(state, index):
        return Oracle.DIVERGENCE
    if safe and _is_gone(state, bounds, index, safe):
        return Oracle.DURABILITY
    return None


def _dropped_too_early(state: RangeModelState, bounds: Bounds, index: int) -> bool:
    held = [replica.held[index] for replica in state.replicas]
    if all(one.kept for one in held):
        return False
    end = len(state.sealed[index].records)
    return sum(one.kept and one.synced >= end for one in held) < bounds.acks


def _diverges(state: RangeModelState, index: int) -> bool:
    longest = max((replica.held[index].log for replica in state.replicas), key=len)
    return any(
        longest[: len(replica.held[index].log)] != replica.held[index].log
        for replica in state.replicas
    )


def _is_gone(state: RangeModelState, bounds: Bounds, index: int, safe: Records) -> bool:
    losses = bounds.lost_disks - state.lost_disks
    if bounds.written:
        losses += bounds.power_losses - state.power_losses
    if losses >= bounds.acks:
        return False  # more failures than the policy tolerates
    return not any(
        replica.alive and replica.held[index].log[: len(safe)] == safe for replica in state.replicas
    )
