"""Every step that may come next in the world of ``range_model``, with a sentence that names it.

A step is one atomic act of one party: a replica takes a call, a writer takes an answer, the
catalogue takes a request, a machine loses its power. ``Steps.after`` gives all of them for a state;
whatever is not forbidden by the rules may happen.
"""

from collections.abc import Iterator

from mainstem.testing.range_model import (
    COPYING,
    FENCING,
    GONE,
    IDLE,
    NOT_ANSWERED,
    SEALING,
    WRITING,
    Bounds,
    DropRule,
    EndRule,
    Held,
    Link,
    Records,
    Replica,
    Rules,
    Seal,
    Sealed,
    State,
    Writer,
)

Step = tuple[str, State]


class Steps:
    """The steps of one world under one set of rules."""

    def __init__(self, bounds: Bounds, rules: Rules) -> None:
        self._bounds = bounds
        self._rules = rules

    def after(self, state: State) -> Iterator[Step]:
        """Everything that may happen next."""
        for number, writer in enumerate(state.writers):
            if writer.phase == WRITING:
                yield from self._write(state, number, writer)
            elif writer.phase == IDLE:
                yield from self._elect(state, number)
            elif writer.phase == FENCING:
                yield from self._fence(state, number, writer)
            elif writer.phase == COPYING:
                yield from self._copy(state, number, writer)
            elif writer.phase == SEALING:
                yield from self._learn_outcome(state, number, writer)
        yield from self._seals_arrive(state)
        if self._bounds.syncs_apart:
            yield from self._sync(state)
        yield from self._faults(state)
        if self._bounds.drops:
            yield from self._upkeep(state)

    # The writer of the open range.

    def _write(self, state: State, number: int, writer: Writer) -> Iterator[Step]:
        name = f"writer {number + 1}"
        offset = _start(state, writer.range_index) + len(writer.log)
        if offset < self._bounds.records:
            log = (*writer.log, 10 * (number + 1) + writer.life)
            yield f"{name} assigns offset {offset}", _with(state, number, writer, log=log)
        for at, replica in enumerate(state.replicas):
            if replica.alive:
                yield from self._append(state, number, writer, at)
            # An answer that left the replica earlier may still arrive.
            link = replica.links[number]
            for acked in range(link.acked + 1, link.sent + 1):
                yield (
                    f"{name} hears from replica {at} that it holds {acked}",
                    self._acknowledged(state, number, writer, at, acked),
                )
        if self._bounds.active_seals:
            yield from self._ask_to_seal(state, number, writer)
        if not self._rules.restart_takes_new_epoch and writer.life == 0:
            yield from self._restart(state, number, writer)

    def _append(self, state: State, number: int, writer: Writer, at: int) -> Iterator[Step]:
        replica = state.replicas[at]
        held = replica.held[writer.range_index]
        if held.promised > writer.epoch:
            return
        link = replica.links[number]
        taken = held._replace(promised=writer.epoch)
        if len(held.log) < len(writer.log):
            taken = taken._replace(log=(*held.log, writer.log[len(held.log)]))
        if not self._bounds.syncs_apart:
            taken = taken._replace(synced=len(taken.log))
        sent = max(link.sent, min(self._end(taken), len(writer.log)))
        if taken == held and sent == link.sent:
            return
        replica = _holds(replica, writer.range_index, taken)
        replica = _linked(replica, number, link._replace(sent=sent))
        yield (
            f"replica {at} takes offset {len(taken.log) - 1} of its range from writer {number + 1}",
            _at(state, at, replica),
        )

    def _end(self, held: Held) -> int:
        return len(held.log) if self._bounds.written else held.synced

    def _acknowledged(
        self, state: State, number: int, writer: Writer, at: int, acked: int
    ) -> State:
        """The writer hears; what enough replicas hold is told to clients in the same step."""
        replica = state.replicas[at]
        link = replica.links[number]._replace(acked=acked)
        state = _at(state, at, _linked(replica, number, link))
        told = state.acked[writer.range_index]
        committed = self._committed(state, number)
        if committed > len(told):
            acks = list(state.acked)
            acks[writer.range_index] = told + writer.log[len(told) : committed]
            state = state._replace(acked=tuple(acks))
        return state

    def _committed(self, state: State, number: int) -> int:
        ends = sorted((r.links[number].acked for r in state.replicas), reverse=True)
        return ends[self._bounds.acks - 1]

    def _ask_to_seal(self, state: State, number: int, writer: Writer) -> Iterator[Step]:
        if any(seal.writer == number for seal in state.seals):
            return
        end = self._committed(state, number)
        label = f"writer {number + 1} asks to seal at {end} of the range"
        heirs = [False]
        if self._bounds.hand_overs and self._heir(state, writer) is not None:
            heirs.append(True)
        for hands_over in heirs:
            asked = self._asked(state, number, writer.log[:end], hands_over=hands_over)
            if self._rules.freezes:
                asked = _with(asked, number, asked.writers[number], phase=SEALING, end=end)
            yield label + (" and to hand over" if hands_over else ""), asked

    def _heir(self, state: State, writer: Writer) -> int | None:
        """The writer that would follow under the next epoch, with a range left for it."""
        room = writer.epoch < len(state.writers) and writer.range_index + 1 < self._bounds.ranges
        return writer.epoch if room else None

    def _asked(
        self, state: State, number: int, records: Records, *, hands_over: bool = False
    ) -> State:
        """The request leaves, with the replicas that the writer knows to be done."""
        writer = state.writers[number]
        replicas = state.replicas
        if self._bounds.drops:
            replicas = tuple(
                _linked(r, number, r.links[number]._replace(claimed=self._claims(r, number, state)))
                for r in replicas
            )
        seal = Seal(number, writer.epoch, writer.range_index, records, writer.suspect, hands_over)
        return state._replace(replicas=replicas, seals=tuple(sorted((*state.seals, seal))))

    def _claims(self, replica: Replica, number: int, state: State) -> bool:
        writer = state.writers[number]
        link = replica.links[number]
        if writer.phase == COPYING:
            return link.copied
        if self._bounds.written and self._rules.done_means_synced:
            return False
        return link.acked >= self._committed(state, number)

    def _restart(self, state: State, number: int, writer: Writer) -> Iterator[Step]:
        """Broken on purpose: the writer comes back under its old epoch from one replica's log."""
        for at, source in enumerate(state.replicas):
            kept = source.held[writer.range_index].log
            if kept != writer.log:
                back = _with(state, number, writer, log=kept, life=1)
                replicas = tuple(_linked(r, number, Link()) for r in back.replicas)
                yield (
                    f"writer {number + 1} restarts with what replica {at} holds, same epoch",
                    back._replace(replicas=replicas),
                )

    def _learn_outcome(self, state: State, number: int, writer: Writer) -> Iterator[Step]:
        name = f"writer {number + 1}"
        if len(state.sealed) > writer.range_index:
            sealed = state.sealed[writer.range_index]
            if sealed.writer == number and not sealed.handed_over:
                yield f"{name} learns that its range is sealed", self._next_range(state, number)
            else:
                yield f"{name} learns that it is deposed", _gone(state, number)
        elif state.epoch > writer.epoch and self._rules.catalogue_checks_epoch:
            yield f"{name} learns that it is deposed", _gone(state, number)
        if self._rules.unfreezes_on_timeout and writer.log and not writer.suspect:
            yield (
                f"{name} stops waiting for the catalogue and goes on",
                _with(state, number, writer, phase=WRITING),
            )

    def _next_range(self, state: State, number: int) -> State:
        """Go on in the next range; what was in flight keeps its offsets."""
        writer = state.writers[number]
        index = writer.range_index + 1
        if index == self._bounds.ranges:
            return _gone(state, number)
        log = writer.log[writer.end :]
        state = _with(state, number, writer, phase=WRITING, range_index=index, log=log, end=0)
        replicas = tuple(_linked(replica, number, Link()) for replica in state.replicas)
        return state._replace(replicas=replicas)

    # A new writer.

    def _elect(self, state: State, number: int) -> Iterator[Step]:
        if state.epoch != number or len(state.sealed) == self._bounds.ranges:
            return
        writer = Writer(FENCING, number + 1, len(state.sealed))
        writers = _put(state.writers, number, writer)
        yield (
            f"writer {number + 1} is elected under epoch {number + 1}",
            state._replace(epoch=number + 1, writers=writers),
        )

    def _fence(self, state: State, number: int, writer: Writer) -> Iterator[Step]:
        for at, replica in enumerate(state.replicas):
            held = replica.held[writer.range_index]
            link = replica.links[number]
            if not replica.alive or link.answered != NOT_ANSWERED or held.promised > writer.epoch:
                continue
            if self._rules.fence_promises:
                held = held._replace(promised=writer.epoch)
            end = held.synced
            if self._rules.fence_syncs:
                end = len(held.log)
                held = held._replace(synced=end)
            counts = held.clean or not self._rules.limbo
            link = link._replace(answered=end, counts=counts)
            fenced = _linked(_holds(replica, writer.range_index, held), number, link)
            yield (
                f"replica {at} is fenced by writer {number + 1} and holds {end}",
                _at(state, at, fenced),
            )
        yield from self._decide(state, number, writer)

    def _decide(self, state: State, number: int, writer: Writer) -> Iterator[Step]:
        links = [replica.links[number] for replica in state.replicas]
        counted = sorted((one.answered for one in links if one.counts), reverse=True)
        suspect = False
        needed = 1 if self._rules.one_answer_is_enough else self._bounds.fence_answers
        if len(counted) >= needed:
            end = self._recovered_end(counted)
        elif all(one.answered != NOT_ANSWERED for one in links):
            end = max(one.answered for one in links)
            suspect = self._rules.says_suspect
        else:
            return
        for replica in state.replicas:
            log = replica.held[writer.range_index].log
            if replica.alive and replica.links[number].answered >= end <= len(log):
                decided = writer._replace(phase=COPYING, log=log[:end], end=end, suspect=suspect)
                yield (
                    f"writer {number + 1} decides for the end {end}",
                    state._replace(writers=_put(state.writers, number, decided)),
                )
                return

    def _recovered_end(self, counted: list[int]) -> int:
        bounds = self._bounds
        match self._rules.end:
            case EndRule.LARGEST:
                return counted[0]
            case EndRule.NAIVE:
                return counted[min(bounds.acks, len(counted)) - 1]
            case EndRule.COUNTED:
                rank = bounds.acks - (bounds.replicas - len(counted))
                return counted[max(rank, 1) - 1]

    def _copy(self, state: State, number: int, writer: Writer) -> Iterator[Step]:
        index, end = writer.range_index, writer.end
        copies = self._rules.copies_before_seal
        has_source = any(r.alive and len(r.held[index].log) >= end for r in state.replicas)
        copied = 0
        for at, replica in enumerate(state.replicas):
            held = replica.held[index]
            link = replica.links[number]
            copied += link.copied
            if link.copied or not replica.alive or held.promised > writer.epoch:
                continue
            if not copies or not (has_source or end <= len(held.log)):
                continue
            log = held.log + writer.log[len(held.log) :]
            held = held._replace(promised=writer.epoch, log=log, synced=len(log))
            brought = _linked(_holds(replica, index, held), number, link._replace(copied=True))
            yield (
                f"writer {number + 1} brings replica {at} to {end}",
                _at(state, at, brought),
            )
        enough = copied >= self._bounds.acks or not copies
        if enough and not any(seal.writer == number for seal in state.seals):
            asked = self._asked(state, number, writer.log)
            asked = _with(asked, number, asked.writers[number], phase=SEALING)
            yield f"writer {number + 1} asks to seal at {end} of the range", asked
        # A source may be gone: as long as nothing was asked, the end may be found anew.
        again = tuple(_linked(r, number, Link()) for r in state.replicas)
        begun = _with(state, number, writer, phase=FENCING, log=(), end=0, suspect=False)
        yield f"writer {number + 1} begins anew", begun._replace(replicas=again)

    # The catalogue.

    def _seals_arrive(self, state: State) -> Iterator[Step]:
        for seal in state.seals:
            rest = tuple(other for other in state.seals if other != seal)
            stale = seal.epoch != state.epoch and self._rules.catalogue_checks_epoch
            if stale or seal.range_index != len(state.sealed):
                # Refused for ever: to forget it keeps states few.
                yield "the catalogue refuses a request", state._replace(seals=rest)
                continue
            closed = Sealed(seal.records, seal.writer, seal.suspect, seal.hands_over)
            replicas = state.replicas
            if self._bounds.drops:
                replicas = tuple(
                    _holds(
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

    def _handed_over(self, state: State, seal: Seal) -> State:
        """The chosen writer begins in the next range, which nobody else was ever told of."""
        heir = self._heir(state, state.writers[seal.writer])
        if heir is None or state.writers[heir].phase != IDLE:
            return state
        writer = Writer(WRITING, state.epoch + 1, seal.range_index + 1)
        return state._replace(epoch=state.epoch + 1, writers=_put(state.writers, heir, writer))

    # Disks.

    def _sync(self, state: State) -> Iterator[Step]:
        for at, replica in enumerate(state.replicas):
            for index, held in enumerate(replica.held):
                if not replica.alive or held.synced >= len(held.log):
                    continue
                synced = _holds(replica, index, held._replace(synced=len(held.log)))
                if not self._bounds.written:
                    synced = self._answer_synced(state, synced, index)
                yield f"replica {at} syncs", _at(state, at, synced)

    def _answer_synced(self, state: State, replica: Replica, index: int) -> Replica:
        """Acknowledgements that waited for the disk leave, unless their writer is fenced."""
        held = replica.held[index]
        for number, writer in enumerate(state.writers):
            if writer.phase not in (WRITING, SEALING) or writer.range_index != index:
                continue
            if held.promised > writer.epoch and not self._rules.acks_after_promise:
                continue
            link = replica.links[number]
            sent = max(link.sent, min(held.synced, len(writer.log)))
            replica = _linked(replica, number, link._replace(sent=sent))
        return replica

    def _faults(self, state: State) -> Iterator[Step]:
        for at, replica in enumerate(state.replicas):
            if not replica.alive:
                continue
            if state.power_losses:
                cut = self._without_power(replica)
                if cut != replica:
                    yield (
                        f"replica {at} loses power",
                        _at(state, at, cut)._replace(power_losses=state.power_losses - 1),
                    )
            if state.lost_disks:
                lost = replica._replace(alive=False)
                if not self._rules.blank_disk_is_lost:
                    lost = replica._replace(held=(Held(),) * self._bounds.ranges)
                yield (
                    f"the disk of replica {at} is destroyed",
                    _at(state, at, lost)._replace(lost_disks=state.lost_disks - 1),
                )

    def _without_power(self, replica: Replica) -> Replica:
        kept = []
        for held in replica.held:
            promised = held.promised if self._rules.promise_is_synced else 0
            clean = held.clean and (held.done or not self._bounds.written)
            log = held.log[: held.synced]
            kept.append(held._replace(promised=promised, log=log, clean=clean))
        return replica._replace(held=tuple(kept))

    def _upkeep(self, state: State) -> Iterator[Step]:
        """Replicas of sealed ranges become complete, are reported and may be dropped."""
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
                        _at(state, at, _holds(replica, index, whole)),
                    )
                if state.drops and self._may_drop(done, held):
                    gone = held._replace(kept=False, log=(), synced=0)
                    yield (
                        f"replica {at} of range {index} is dropped",
                        _at(state, at, _holds(replica, index, gone))._replace(
                            drops=state.drops - 1
                        ),
                    )

    def _may_drop(self, done: int, held: Held) -> bool:
        match self._rules.drop:
            case DropRule.AT_ONCE:
                return True
            case DropRule.ITSELF_COUNTS:
                return done >= self._bounds.acks
            case DropRule.OTHERS_DONE:
                return done - held.done >= self._bounds.acks


def _start(state: State, index: int) -> int:
    return sum(len(sealed.records) for sealed in state.sealed[:index])


def _put(items: tuple[Writer, ...], at: int, item: Writer) -> tuple[Writer, ...]:
    return (*items[:at], item, *items[at + 1 :])


def _with(state: State, number: int, writer: Writer, **changes: object) -> State:
    changed = writer._replace(**changes)  # type: ignore[arg-type]
    return state._replace(writers=_put(state.writers, number, changed))


def _gone(state: State, number: int) -> State:
    """What a writer knew is of no consequence any more: forgotten, it keeps states few."""
    replicas = tuple(_linked(replica, number, Link()) for replica in state.replicas)
    return state._replace(replicas=replicas, writers=_put(state.writers, number, Writer(GONE)))


def _at(state: State, at: int, replica: Replica) -> State:
    replicas = state.replicas
    return state._replace(replicas=(*replicas[:at], replica, *replicas[at + 1 :]))


def _holds(replica: Replica, index: int, held: Held) -> Replica:
    return replica._replace(held=(*replica.held[:index], held, *replica.held[index + 1 :]))


def _linked(replica: Replica, number: int, link: Link) -> Replica:
    return replica._replace(links=(*replica.links[:number], link, *replica.links[number + 1 :]))
