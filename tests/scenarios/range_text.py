"""Ranges and the messages about them in one line each."""

from tests.kit.simulation.ranges.messages import Append, Fence, RangeSimMessage, SealOutcome

from mainstem.model.ids import NodeId
from mainstem.model.metadata import Range
from mainstem.streams.failover.sealing import SealRequest
from mainstem.streams.failover.state_machine import ReplicaCopy
from mainstem.streams.replica.state_machine import FenceAnswer, Refusal, ReplicaAck


def span(start: int, until: int) -> str:
    if until <= start:
        return "nothing"
    return str(start) if until == start + 1 else f"{start}-{until - 1}"


def _list(nodes: tuple[NodeId, ...]) -> str:
    return " ".join(map(str, sorted(nodes))) or "none"


def range_text(one: Range) -> str:
    text = f"range {one.index} of epoch {one.epoch} on {_list(one.replicas)}"
    if one.end is None:
        return f"{text}: open from {one.start}"
    return f"{text}: sealed, {span(one.start, one.end)}{', suspect' if one.suspect else ''}"


def message_text(message: RangeSimMessage) -> str:
    match message.content:
        case Append() as append:
            records = span(append.start, append.start + len(append.values))
            text = f"{records}, epoch {append.epoch}, committed until {append.committed}"
        case ReplicaAck() as ack:
            text = f"until {ack.end}, on disk until {ack.synced}"
        case Refusal() as refusal:
            text = _refusal_text(refusal)
        case Fence() as fence:
            text = f"epoch {fence.epoch}"
        case FenceAnswer() as answer:
            limbo = ", in limbo" if answer.limbo else ""
            text = f"epoch {answer.epoch}, ends at {answer.end}{limbo}"
        case ReplicaCopy() as copy:
            text = f"{span(copy.start, copy.until)} to node {copy.target}"
        case SealRequest() as request:
            text = _request_text(request)
        case SealOutcome() as outcome:
            text = f"{'refused' if outcome.stream is None else 'sealed'}, epoch {outcome.epoch}"
    return f"{type(message.content).__name__}: {text}"


def _refusal_text(refusal: Refusal) -> str:
    if refusal.fenced_by is not None:
        return f"promised to epoch {refusal.fenced_by}"
    if refusal.gap_at is not None:
        return f"a gap, the replica ends at {refusal.gap_at}"
    return f"the range is sealed at {refusal.sealed_at}"


def _request_text(request: SealRequest) -> str:
    end = request.end
    text = f"range {end.index} at {end.end}, complete on {_list(request.done)}"
    if request.exclude:
        text += f", without {_list(request.exclude)}"
    if request.new_writer is not None:
        text += f", next writer {request.new_writer}"
    return text + (", suspect" if end.suspect else "")
