"""The machines of replicated ranges on random walks of messages, stops, elections and seals.

Each deliberate flaw below must be found by the same walks that the machines survive.
"""

from collections.abc import Callable, Iterable

import pytest
from tests.kit.simulation.ranges import node as range_sim_node
from tests.kit.simulation.ranges.random_walk import Walk, main, settings_of

from mainstem.model.ids import Epoch, Offset
from mainstem.streams.ack_policy import AckPolicy
from mainstem.streams.failover.state_machine import FailOver, FailOverEffects, Phase
from mainstem.streams.replica import state_machine
from mainstem.streams.replica.state_machine import (
    FenceAnswer,
    RangeReplica,
    Refusal,
    ReplicaAck,
    ReplicaEffects,
)
from mainstem.streams.writer.replication import (
    OpenRange,
    RangeWriter,
    SealPoint,
    WriterEffects,
)

SEEDS_TO_KILL = 300
STEPS = 800

Patch = Callable[[pytest.MonkeyPatch], None]


def walked(seed: int, steps: int = STEPS) -> Walk:
    walk = Walk(settings_of(seed), seed)
    walk.run(steps)
    return walk


def walk_all(seeds: range) -> list[Walk]:
    return [walked(seed) for seed in seeds]


@pytest.mark.parametrize("start", range(0, 96, 24))
def test_nothing_acknowledged_is_lost_on_any_walk(start: int) -> None:
    walks = walk_all(range(start, start + 24))
    assert sum(len(walk.sim.acked) for walk in walks) > 300
    assert sum(len(walk.sim.catalogue.ranges) for walk in walks) > 50


def test_a_seed_determines_a_walk() -> None:
    first, second = walked(7), walked(7)
    assert first.sim.acked == second.sim.acked
    assert first.sim.catalogue.ranges == second.sim.catalogue.ranges


def test_the_command_prints_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "5", "--count", "3", "--steps", "300"]) == 0
    assert "3 walks without a violation" in capsys.readouterr().out


def test_the_command_names_the_seed_of_a_violation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(RangeWriter, "_commit", commit_while_frozen)
    assert main(["--count", "50"]) == 1
    assert "ACKED_LOST" in capsys.readouterr().out


def naive_end(self: AckPolicy, ends: Iterable[Offset]) -> Offset:
    ordered = sorted(ends)
    return ordered[-min(self.acks, len(ordered))]


def one_ack_fewer(self: AckPolicy, ends: Iterable[Offset]) -> Offset:
    return sorted(ends)[-max(1, self.acks - 1)]


def answer_now(replica: RangeReplica, epoch: Epoch) -> FenceAnswer:
    return FenceAnswer(epoch, replica.synced_end, replica.limbo, replica.directory)


def fence_that_only_reads(self: RangeReplica, epoch: Epoch) -> ReplicaEffects:
    refusal = self._refusal(epoch)
    if refusal is not None:
        return ReplicaEffects(refusal=refusal)
    return ReplicaEffects(answer=answer_now(self, epoch))


def fence_that_answers_before_storing(self: RangeReplica, epoch: Epoch) -> ReplicaEffects:
    refusal = self._refusal(epoch)
    if refusal is not None:
        return ReplicaEffects(refusal=refusal)
    return ReplicaEffects(promise=self._promise(epoch), answer=answer_now(self, epoch))


def fence_that_does_not_sync(self: RangeReplica, epoch: Epoch) -> ReplicaEffects:
    refusal = self._refusal(epoch)
    if refusal is not None:
        return ReplicaEffects(refusal=refusal)
    promise = self._promise(epoch)
    self._fence = (epoch, self.synced_end)
    return ReplicaEffects(promise=promise, answer=self._answer())


def ack_whoever_wrote(self: RangeReplica) -> ReplicaAck | None:
    return None if self._writer is None else ReplicaAck(self._writer, self.end, self.synced_end)


def refuse_sealed_only(self: RangeReplica, epoch: Epoch) -> Refusal | None:
    return None if self.sealed_end is None else Refusal(sealed_at=self.sealed_end)


def promise_the_highest(self: RangeReplica, epoch: Epoch) -> Epoch | None:
    if epoch <= self.promised:
        return None
    self.promised = epoch
    self._fence = None
    return epoch


def accept_gaps(
    self: RangeReplica,
    epoch: Epoch,
    start: Offset,
    until: Offset,
    committed: Offset,
    *,
    to_disk: bool = False,
) -> ReplicaEffects:
    if self._refusal(epoch) is None:
        self._accepted = max(self._accepted, start)
    return on_append(self, epoch, start, until, committed, to_disk=to_disk)


def commit_while_frozen(self: RangeWriter, effects: WriterEffects) -> None:
    was_frozen, self._is_frozen = self._is_frozen, False
    commit(self, effects)
    self._is_frozen = was_frozen


def forget_what_was_in_flight(
    self: RangeWriter, opened: OpenRange, policy: AckPolicy, now: int
) -> tuple[RangeWriter, WriterEffects]:
    return RangeWriter(opened, policy, self._limits, now), WriterEffects()


def seal_after_one_copy(
    self: FailOver, effects: FailOverEffects, copies_min: int | None = None
) -> None:
    done = tuple(node for node, held in self._held.items() if held >= self.end)
    if done:
        self.phase = Phase.SEALING
        # Claims what a true seal would have, so that the oracle of lone copies does not excuse it.
        claimed = tuple(self._taken.opened.replicas[: self.policy.acks])
        effects.seal = SealPoint(self.end, claimed, suspect=self.suspect, unclean=self.unclean)


on_append = RangeReplica.on_append
commit = RangeWriter._commit

FLAWS: dict[str, Patch] = {
    "a replica shows readers all it has written": lambda patch: patch.setattr(
        RangeReplica, "known_committed", property(lambda self: self.written_end, lambda *_: None)
    ),
    "the end is the A-th largest of all answers": lambda patch: patch.setattr(
        AckPolicy, "recovered_end", naive_end
    ),
    "one acknowledgement fewer commits": lambda patch: patch.setattr(
        AckPolicy, "committed", one_ack_fewer
    ),
    "the fence only reads": lambda patch: patch.setattr(
        RangeReplica, "on_fence", fence_that_only_reads
    ),
    "the fence answers before the promise is stored": lambda patch: patch.setattr(
        RangeReplica, "on_fence", fence_that_answers_before_storing
    ),
    "late acknowledgements after a fence that does not sync": lambda patch: (
        patch.setattr(RangeReplica, "on_fence", fence_that_does_not_sync),
        patch.setattr(RangeReplica, "_ack", ack_whoever_wrote),
    )[0],
    "replicas serve older epochs": lambda patch: (
        patch.setattr(RangeReplica, "_refusal", refuse_sealed_only),
        patch.setattr(RangeReplica, "_promise", promise_the_highest),
        patch.setattr(RangeReplica, "_ack", ack_whoever_wrote),
    )[0],
    "replicas accept gaps": lambda patch: patch.setattr(RangeReplica, "on_append", accept_gaps),
    "written is acknowledged although the topic asks for synced": lambda patch: patch.setattr(
        RangeReplica, "end", property(lambda self: self.written_end)
    ),
    "a written copy counts as synced": lambda patch: patch.setattr(
        RangeReplica,
        "_ack",
        lambda self: (
            ReplicaAck(self.promised, self.end, self.written_end)
            if self._writer == self.promised
            else None
        ),
    ),
    "done is reported before the sync": lambda patch: patch.setattr(
        RangeReplica,
        "_is_done",
        lambda self: self.sealed_end is not None and self.written_end >= self.sealed_end,
    ),
    "there is no limbo": lambda patch: patch.setattr(
        range_sim_node, "is_in_limbo", lambda **_: False
    ),
    "a blank disk counts as the one it replaced": lambda patch: patch.setattr(
        FailOver, "_own", lambda self: dict(self._answers)
    ),
    "a recovered range is sealed after one copy": lambda patch: patch.setattr(
        FailOver, "_seal", seal_after_one_copy
    ),
    "a frozen writer commits": lambda patch: patch.setattr(
        RangeWriter, "_commit", commit_while_frozen
    ),
    "the next range forgets what was in flight": lambda patch: patch.setattr(
        RangeWriter, "successor", forget_what_was_in_flight
    ),
}


@pytest.mark.parametrize("flaw", FLAWS.values(), ids=FLAWS)
def test_a_flaw_in_a_machine_is_found(flaw: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    flaw(monkeypatch)
    with pytest.raises(AssertionError):
        walk_all(range(SEEDS_TO_KILL))


def test_late_acknowledgements_alone_are_harmless_behind_a_syncing_fence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in the model checker: either of the two rules is enough, both are kept."""
    monkeypatch.setattr(state_machine.RangeReplica, "_ack", ack_whoever_wrote)
    walk_all(range(40))
