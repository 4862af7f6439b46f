"""A node of ``simulator``: replicas of ranges on one disk that is stepped explicitly."""

from collections import deque

from tests.kit.simulation.ranges.messages import (
    Append,
    Fence,
    RangeSimMessage,
    RangeSimSettings,
)

from mainstem.model.ids import Epoch, NodeId, Offset, RangeIndex
from mainstem.model.metadata import Range
from mainstem.streams.failover.state_machine import ReplicaCopy
from mainstem.streams.replica.state_machine import (
    FenceAnswer,
    RangeReplica,
    ReplicaEffects,
    ReplicaState,
    is_in_limbo,
)


class _Held:
    """A replica and its files."""

    def __init__(self, opened: Range, directory: str, *, acks_unsynced: bool) -> None:
        self.opened = opened
        self.values: list[int] = []
        self.synced = 0
        self.promise = opened.epoch
        state = ReplicaState(opened.start, opened.start, opened.epoch, directory)
        self.machine = RangeReplica(state, acks_unsynced=acks_unsynced)
        self.limbo = False


# Pending operations of a disk: store a promise, or sync what is written by then.
_Work = tuple[RangeIndex, Epoch | None]


class RangeSimNode:
    """Holds replicas of ranges on a disk that is stepped explicitly."""

    def __init__(self, name: NodeId, settings: RangeSimSettings) -> None:
        self.name = name
        self.directory = f"disk-{name}"
        self._settings = settings
        self._held: dict[RangeIndex, _Held] = {}
        self._work: deque[_Work] = deque()

    @property
    def has_work(self) -> bool:
        """Whether the disk has pending operations."""
        return bool(self._work)

    def values(self, index: RangeIndex) -> list[int]:
        """The records of a range that are written."""
        held = self._held.get(index)
        return [] if held is None else held.values

    def synced(self, index: RangeIndex) -> int:
        """How many records of a range are on disk."""
        held = self._held.get(index)
        return 0 if held is None else held.synced

    def visible_until(self, index: RangeIndex) -> Offset | None:
        """The offset up to which a reader of a range sees records here; None without a replica."""
        held = self._held.get(index)
        return None if held is None else held.machine.known_committed

    def receive(
        self, message: RangeSimMessage, opened: Range, assigned: str
    ) -> list[RangeSimMessage]:
        """Handle a call from a writer for a range that was placed on the disk ``assigned``."""
        content = message.content
        if isinstance(content, Fence) and assigned != self.directory:
            answer = FenceAnswer(content.epoch, opened.start, limbo=False, directory=self.directory)
            return [RangeSimMessage(answer, opened.index, to_epoch=content.epoch, sender=self.name)]
        if assigned != self.directory:
            return []  # a blank disk has lost its promises: it must not start a replica again
        match content:
            case Append():
                return self._append(content, opened)
            case Fence():
                held = self._open(opened)
                return self._carry_out(held, held.machine.on_fence(content.epoch), content.epoch)
            case ReplicaCopy():
                return self._copy(content, opened, message)
            case _:
                raise AssertionError(f"a node does not accept {content}")

    def store_next(self) -> list[RangeSimMessage]:
        """Carry out the oldest pending operation of the disk."""
        if not self._work:
            return []
        index, promise = self._work.popleft()
        held = self._held[index]
        if promise is not None:
            held.promise = max(held.promise, promise)
            return self._carry_out(held, held.machine.on_promise_stored(promise), promise)
        held.synced = len(held.values)
        end = Offset(held.opened.start + held.synced)
        return self._carry_out(held, held.machine.on_synced(end), held.machine.promised)

    def restart(self, *, loses_power: bool, done: set[tuple[RangeIndex, NodeId, str]]) -> None:
        """Restart from the disk."""
        self._work.clear()
        unsynced = self._settings.acks_unsynced
        for index, held in self._held.items():
            if loses_power:
                del held.values[held.synced :]
            held.synced = len(held.values)
            is_done = (index, self.name, self.directory) in done
            held.limbo = not is_done and (
                held.limbo
                or is_in_limbo(
                    acks_unsynced=unsynced, unclean=loses_power, sync_failed=False, done=is_done
                )
            )
            end = Offset(held.opened.start + len(held.values))
            state = ReplicaState(
                held.opened.start, end, held.promise, self.directory, limbo=held.limbo
            )
            held.machine = RangeReplica(state, acks_unsynced=unsynced)

    def replace_disk(self, number: int) -> None:
        """Replace the disk by a blank one."""
        self.directory = f"disk-{self.name}-{number}"
        self._held.clear()
        self._work.clear()

    def receive_sealed(self, one: Range, complete: list[int] | None) -> bool:
        """Seal a range; ``complete`` is a peer's copy. Returns whether the replica is done."""
        assert one.end is not None
        held = self._open(one)
        effects = held.machine.on_sealed(one.end)
        if effects.cut is not None:
            del held.values[effects.cut - one.start :]
            held.synced = min(held.synced, len(held.values))
        if effects.catch_up is not None:
            if complete is None:
                return False
            count = one.end - one.start
            held.values.extend(complete[len(held.values) : count])
            effects = held.machine.on_copied(one.end)
        if effects.sync and not effects.done:
            held.synced = len(held.values)
            effects = held.machine.on_synced(one.end)
        held.limbo = held.limbo and not effects.done
        return effects.done

    def _open(self, opened: Range) -> _Held:
        held = self._held.get(opened.index)
        if held is None:
            held = _Held(opened, self.directory, acks_unsynced=self._settings.acks_unsynced)
            self._held[opened.index] = held
        return held

    def _append(self, append: Append, opened: Range) -> list[RangeSimMessage]:
        held = self._open(opened)
        until = Offset(append.start + len(append.values))
        effects = held.machine.on_append(
            append.epoch, append.start, until, append.committed, to_disk=append.to_disk
        )
        if effects.write is not None:
            first, last = effects.write
            held.values.extend(append.values[first - append.start : last - append.start])
        sent = self._carry_out(held, effects, append.epoch)
        if effects.write is not None:
            sent += self._carry_out(held, held.machine.on_written(effects.write[1]), append.epoch)
        return sent

    def _copy(
        self, copy: ReplicaCopy, opened: Range, message: RangeSimMessage
    ) -> list[RangeSimMessage]:
        held = self._held.get(opened.index)
        count = copy.until - opened.start
        if held is None or len(held.values) < count or message.to_epoch is None:
            return []
        values = tuple(held.values[copy.start - opened.start : count])
        append = Append(message.to_epoch, copy.start, values, opened.start, to_disk=True)
        return [RangeSimMessage(append, opened.index, to_node=copy.target)]

    def _carry_out(
        self, held: _Held, effects: ReplicaEffects, epoch: Epoch
    ) -> list[RangeSimMessage]:
        index = held.opened.index
        if effects.promise is not None:
            self._work.append((index, effects.promise))
        if effects.sync:
            self._work.append((index, None))
        sent = (effects.ack, effects.refusal, effects.answer)
        return [
            RangeSimMessage(one, index, to_epoch=getattr(one, "epoch", epoch), sender=self.name)
            for one in sent
            if one is not None
        ]
