"""Steps of the model that no writer takes: the catalogue, disks, faults, maintenance."""

from collections.abc import Iterator

from tests.kit.range_checker.state import (
    IDLE,
    SEALING,
    WRITING,
    Bounds,
    DropRule,
    HeldRange,
    RangeModelState,
    RangeRules,
    Replica,
    Seal,
    Sealed,
    Writer,
    holding,
    linked,
    successor_writer_of,
    with_replica,
    with_writer,
)

Step = tuple[str, RangeModelState]


class ModelEnvironment:
    """The steps that no writer takes."""

    def __init__(self, bounds: Bounds, rules: RangeRules) -> None:
        self._bounds = bounds
        self._rules = rules

    def after(self, state: RangeModelState) -> Iterator[Step]:
        """Every possible next step."""
        yield from self._seals_arrive(state)
        if self._bounds.syncs_apart:
            yield from self._sync(state)
        yield from self._faults(state)
        if self._bounds.drops:
            yield from self._upkeep(state)

    def _seals_arrive(self, state: RangeModelState) -> Iterator[Step]:
        for seal in state.seals:
            rest = tuple(other for other in state.seals if other != seal)
            stale = seal.epoch != state.epoch and self._rules.catalogue_checks_epoch
            if stale or seal.range_index != len(state.sealed):
                # Refused in every later state: dropping it reduces the number of states.
                yield "the catalogue refuses a request", state._replace(seals=rest)
                continue
            closed = Sealed(seal.records, seal.writer, seal.suspect, seal.hands_over)
            replicas = state.replicas
            if self._bounds.drops:
                replicas = tuple(
                    holding(
                        r,
                        seal.range_index,
                        r.held[seal.range_index]._replace(done=r.links[seal.writer].claimed),
                    )
                    for r in replicas
                )
            applied = state._replace(
                sealed=(*state.sealed, closed),
                deposed_opened=state.deposed_opened or seal.epoch < state.epoch,
                seals=rest,
                replicas=replicas,
            )
            yield (
                f"the catalogue seals range {seal.range_index} at {len(seal.records)}"
                f" for writer {seal.writer + 1}",
                self._handed_over(applied, seal) if seal.hands_over else applied,
            )

    def _handed_over(self, state: RangeModelState, seal: Seal) -> RangeModelState:
        """Start the chosen writer in the next range, which no other writer knows."""
        successor = successor_writer_of(state, state.writers[seal.writer], self._bounds)
        if successor is None or state.writers[successor].phase != IDLE:
            return state
        writer = Writer(WRITING, state.epoch + 1, seal.range_index + 1)
        return with_writer(state, successor, writer)._replace(epoch=state.epoch + 1)

    def _sync(self, state: RangeModelState) -> Iterator[Step]:
        for at, replica in enumerate(state.replicas):
            for index, held in enumerate(replica.held):
                if not replica.alive or held.synced >= len(held.log):
                    continue
                synced = holding(replica, index, held._replace(synced=len(held.log)))
                if not self._bounds.written:
                    synced = self._answer_synced(state, synced, index)
                yield f"replica {at} syncs", with_replica(state, at, synced)

    def _answer_synced(self, state: RangeModelState, replica: Replica, index: int) -> Replica:
        """Send acknowledgements that waited for the disk, unless their writer is fenced."""
        held = replica.held[index]
        for number, writer in enumerate(state.writers):
            if writer.phase not in (WRITING, SEALING) or writer.range_index != index:
                continue
            if held.promised > writer.epoch and not self._rules.acks_after_promise:
                continue
            link = replica.links[number]
            sent = max(link.sent, min(held.synced, len(writer.log)))
            replica = linked(replica, number, link._replace(sent=sent))
        return replica

    def _faults(self, state: RangeModelState) -> Iterator[Step]:
        for at, replica in enumerate(state.replicas):
            if not replica.alive:
                continue
            if state.power_losses:
                cut = self._without_power(replica)
                if cut != replica:
                    yield (
                        f"replica {at} loses power",
                        with_replica(state, at, cut)._replace(power_losses=state.power_losses - 1),
                    )
            if state.lost_disks:
                lost = replica._replace(alive=False)
                if not self._rules.blank_disk_is_lost:
                    lost = replica._replace(held=(HeldRange(),) * self._bounds.ranges)
                yield (
                    f"the disk of replica {at} is destroyed",
                    with_replica(state, at, lost)._replace(lost_disks=state.lost_disks - 1),
                )

    def _without_power(self, replica: Replica) -> Replica:
        kept = []
        for held in replica.held:
            promised = held.promised if self._rules.promise_is_synced else 0
            clean = held.clean and (held.done or not self._bounds.written)
            log = held.log[: held.synced]
            kept.append(held._replace(promised=promised, log=log, clean=clean))
        return replica._replace(held=tuple(kept))

    def _upkeep(self, state: RangeModelState) -> Iterator[Step]:
        """Complete, report and drop replicas of sealed ranges."""
        for index, sealed in enumerate(state.sealed):
            end = len(sealed.records)
            done = sum(r.held[index].done and r.held[index].kept for r in state.replicas)
            for at, replica in enumerate(state.replicas):
                held = replica.held[index]
                if not replica.alive or not held.kept:
                    continue
                if not held.done and (len(held.log) >= end or done):
                    log = held.log[:end] + sealed.records[len(held.log) :]
                    whole = held._replace(log=log, synced=end, clean=True, done=True)
                    yield (
                        f"replica {at} completes range {index} and reports it",
                        with_replica(state, at, holding(replica, index, whole)),
                    )
                if state.drops and self._may_drop(done, held):
                    gone = held._replace(kept=False, log=(), synced=0)
                    yield (
                        f"replica {at} of range {index} is dropped",
                        with_replica(state, at, holding(replica, index, gone))._replace(
                            drops=state.drops - 1
                        ),
                    )

    def _may_drop(self, done: int, held: HeldRange) -> bool:
        match self._rules.drop:
            case DropRule.AT_ONCE:
                return True
            case DropRule.ITSELF_COUNTS:
                return done >= self._bounds.acks
            case DropRule.OTHERS_DONE:
                return done - held.done >= self._bounds.acks
