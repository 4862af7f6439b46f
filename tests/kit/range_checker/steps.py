"""All possible next steps of a state of the model, each with a label.

A step is one atomic action of one party: a replica receives a call, a writer receives an answer,
the catalogue receives a request, a machine loses power. ``ModelSteps.after`` returns all steps of
a state that the rules do not forbid.
"""

from collections.abc import Iterator

from tests.kit.range_checker.environment import ModelEnvironment, Step
from tests.kit.range_checker.state import (
    COPYING,
    FENCING,
    IDLE,
    NOT_ANSWERED,
    SEALING,
    WRITING,
    Bounds,
    EndRule,
    HeldRange,
    Link,
    RangeModelState,
    RangeRules,
    Records,
    Replica,
    Seal,
    Writer,
    gone,
    holding,
    linked,
    start_of,
    successor_writer_of,
    with_replica,
    with_writer,
)


class ModelSteps:
    """The steps of a model with given bounds and rules."""

    def __init__(self, bounds: Bounds, rules: RangeRules) -> None:
        self._bounds = bounds
        self._rules = rules
        self._context = ModelEnvironment(bounds, rules)

    def after(self, state: RangeModelState) -> Iterator[Step]:
        """Every possible next step."""
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
        yield from self._context.after(state)

    def _write(self, state: RangeModelState, number: int, writer: Writer) -> Iterator[Step]:
        name = f"writer {number + 1}"
        offset = start_of(state, writer.range_index) + len(writer.log)
        if offset < self._bounds.records:
            log = (*writer.log, 10 * (number + 1) + writer.life)
            yield f"{name} assigns offset {offset}", with_writer(state, number, writer, log=log)
        for at, replica in enumerate(state.replicas):
            if replica.alive:
                yield from self._append(state, number, writer, at)
            # An answer that left the replica earlier may still arrive.
            link = replica.links[number]
            for acked in range(link.acked + 1, link.sent + 1):
                yield (
                    f"{name} receives from replica {at} that it holds {acked}",
                    self._acknowledged(state, number, writer, at, acked),
                )
        if self._bounds.active_seals:
            yield from self._ask_to_seal(state, number, writer)
        if not self._rules.restart_takes_new_epoch and writer.life == 0:
            yield from self._restart(state, number, writer)

    def _append(
        self, state: RangeModelState, number: int, writer: Writer, at: int
    ) -> Iterator[Step]:
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
        replica = holding(replica, writer.range_index, taken)
        replica = linked(replica, number, link._replace(sent=sent))
        yield (
            f"replica {at} takes offset {len(taken.log) - 1} of its range from writer {number + 1}",
            with_replica(state, at, replica),
        )

    def _end(self, held: HeldRange) -> int:
        return len(held.log) if self._bounds.written else held.synced

    def _acknowledged(
        self, state: RangeModelState, number: int, writer: Writer, at: int, acked: int
    ) -> RangeModelState:
        """The writer receives an acknowledgement; committed records are acknowledged to clients."""
        replica = state.replicas[at]
        link = replica.links[number]._replace(acked=acked)
        state = with_replica(state, at, linked(replica, number, link))
        known_acked = state.acked[writer.range_index]
        committed = self._committed(state, number)
        if committed > len(known_acked):
            acks = list(state.acked)
            acks[writer.range_index] = known_acked + writer.log[len(known_acked) : committed]
            state = state._replace(acked=tuple(acks))
        return state

    def _committed(self, state: RangeModelState, number: int) -> int:
        ends = sorted((r.links[number].acked for r in state.replicas), reverse=True)
        return ends[self._bounds.acks - 1]

    def _ask_to_seal(self, state: RangeModelState, number: int, writer: Writer) -> Iterator[Step]:
        if any(seal.writer == number for seal in state.seals):
            return
        end = self._committed(state, number)
        label = f"writer {number + 1} asks to seal at {end} of the range"
        successors = [False]
        if self._bounds.hand_overs and successor_writer_of(state, writer, self._bounds) is not None:
            successors.append(True)
        for hands_over in successors:
            asked = self._asked(state, number, writer.log[:end], hands_over=hands_over)
            if self._rules.freezes:
                asked = with_writer(asked, number, asked.writers[number], phase=SEALING, end=end)
            yield label + (" and to hand over" if hands_over else ""), asked

    def _asked(
        self, state: RangeModelState, number: int, records: Records, *, hands_over: bool = False
    ) -> RangeModelState:
        """Send the request, with the replicas that the writer knows to be done."""
        writer = state.writers[number]
        replicas = state.replicas
        if self._bounds.drops:
            replicas = tuple(
                linked(r, number, r.links[number]._replace(claimed=self._claims(r, number, state)))
                for r in replicas
            )
        seal = Seal(number, writer.epoch, writer.range_index, records, writer.suspect, hands_over)
        return state._replace(replicas=replicas, seals=tuple(sorted((*state.seals, seal))))

    def _claims(self, replica: Replica, number: int, state: RangeModelState) -> bool:
        writer = state.writers[number]
        link = replica.links[number]
        if writer.phase == COPYING:
            return link.copied
        if self._bounds.written and self._rules.done_means_synced:
            return False
        return link.acked >= self._committed(state, number)

    def _restart(self, state: RangeModelState, number: int, writer: Writer) -> Iterator[Step]:
        """Broken on purpose: the writer restarts in its old epoch with one replica's log."""
        for at, source in enumerate(state.replicas):
            kept = source.held[writer.range_index].log
            if kept != writer.log:
                back = with_writer(state, number, writer, log=kept, life=1)
                replicas = tuple(linked(r, number, Link()) for r in back.replicas)
                yield (
                    f"writer {number + 1} restarts with what replica {at} holds, same epoch",
                    back._replace(replicas=replicas),
                )

    def _learn_outcome(self, state: RangeModelState, number: int, writer: Writer) -> Iterator[Step]:
        name = f"writer {number + 1}"
        if len(state.sealed) > writer.range_index:
            sealed = state.sealed[writer.range_index]
            if sealed.writer == number and not sealed.handed_over:
                yield f"{name} learns that its range is sealed", self._next_range(state, number)
            else:
                yield f"{name} learns that it is deposed", gone(state, number)
        elif state.epoch > writer.epoch and self._rules.catalogue_checks_epoch:
            yield f"{name} learns that it is deposed", gone(state, number)
        if self._rules.unfreezes_on_timeout and writer.log and not writer.suspect:
            yield (
                f"{name} stops waiting for the catalogue and goes on",
                with_writer(state, number, writer, phase=WRITING),
            )

    def _next_range(self, state: RangeModelState, number: int) -> RangeModelState:
        """Continue in the next range; records in flight keep their offsets."""
        writer = state.writers[number]
        index = writer.range_index + 1
        if index == self._bounds.ranges:
            return gone(state, number)
        log = writer.log[writer.end :]
        state = with_writer(state, number, writer, phase=WRITING, range_index=index, log=log, end=0)
        replicas = tuple(linked(replica, number, Link()) for replica in state.replicas)
        return state._replace(replicas=replicas)

    def _elect(self, state: RangeModelState, number: int) -> Iterator[Step]:
        if state.epoch != number or len(state.sealed) == self._bounds.ranges:
            return
        elected = with_writer(state, number, Writer(FENCING, number + 1, len(state.sealed)))
        yield (
            f"writer {number + 1} is elected under epoch {number + 1}",
            elected._replace(epoch=number + 1),
        )

    def _fence(self, state: RangeModelState, number: int, writer: Writer) -> Iterator[Step]:
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
            fenced = linked(holding(replica, writer.range_index, held), number, link)
            yield (
                f"replica {at} is fenced by writer {number + 1} and holds {end}",
                with_replica(state, at, fenced),
            )
        yield from self._decide(state, number, writer)

    def _decide(self, state: RangeModelState, number: int, writer: Writer) -> Iterator[Step]:
        links = [replica.links[number] for replica in state.replicas]
        counted = sorted((one.answered for one in links if one.counts), reverse=True)
        suspect = False
        needed = 1 if self._rules.one_answer_is_enough else self._bounds.fence_answers
        if len(counted) >= needed:
            end = self._recovered_end(counted)
        elif all(one.answered != NOT_ANSWERED for one in links):
            end = max(one.answered for one in links)
            suspect = self._rules.announces_suspect
        else:
            return
        for replica in state.replicas:
            log = replica.held[writer.range_index].log
            if replica.alive and replica.links[number].answered >= end <= len(log):
                decided = writer._replace(phase=COPYING, log=log[:end], end=end, suspect=suspect)
                yield (
                    f"writer {number + 1} decides for the end {end}",
                    with_writer(state, number, decided),
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

    def _copy(self, state: RangeModelState, number: int, writer: Writer) -> Iterator[Step]:
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
            brought = linked(holding(replica, index, held), number, link._replace(copied=True))
            yield (
                f"writer {number + 1} brings replica {at} to {end}",
                with_replica(state, at, brought),
            )
        needed = 1 if self._rules.one_copy_is_enough else self._bounds.acks
        enough = copied >= needed or not copies
        if enough and not any(seal.writer == number for seal in state.seals):
            asked = self._asked(state, number, writer.log)
            asked = with_writer(asked, number, asked.writers[number], phase=SEALING)
            yield f"writer {number + 1} asks to seal at {end} of the range", asked
        # A source may be gone: before a request is sent the end may be determined again.
        again = tuple(linked(r, number, Link()) for r in state.replicas)
        begun = with_writer(state, number, writer, phase=FENCING, log=(), end=0, suspect=False)
        yield f"writer {number + 1} starts recovery again", begun._replace(replicas=again)
