"""The catalogue of ``simulator``: one stream, with seals and elections fenced by epochs."""

from msgspec.structs import replace
from tests.kit.simulation.ranges.messages import (
    RangeSimMessage,
    RangeSimSettings,
    SealOutcome,
)

from mainstem.model.ids import Epoch, NodeId, RangeIndex
from mainstem.model.metadata import Range, Stream
from mainstem.streams.failover.sealing import SealRequest


class RangeSimCatalogue:
    """Seals a range once, answers a repeated request like the first, refuses older epochs."""

    def __init__(
        self, stream: Stream, directories: dict[NodeId, str], settings: RangeSimSettings
    ) -> None:
        self.stream = stream
        self.ranges = list(stream.ranges)  # including empty ones, which a stream does not keep
        self.directories = {stream.last.index: dict(directories)}
        self.done: set[tuple[RangeIndex, NodeId, str]] = set()
        self.answers: dict[str, SealOutcome] = {}
        self._current = directories
        self._settings = settings

    def range_of(self, index: RangeIndex) -> Range:
        """A range by its number."""
        return self.ranges[index]

    def directory_changed(self, node: NodeId, directory: str) -> None:
        """Register another disk of a node; new ranges are placed on that one."""
        self._current[node] = directory

    def elect(self, node: NodeId) -> Stream:
        """Elect another writer in the next epoch."""
        self.stream = replace(self.stream, epoch=Epoch(self.stream.epoch + 1), writer=node)
        return self.stream

    def receive(self, message: RangeSimMessage) -> list[RangeSimMessage]:
        """Handle a request to seal."""
        request = message.content
        assert isinstance(request, SealRequest)
        answer = self.answers.get(request.request_id)
        if answer is None:
            answer = self._decide(request)
        reply = RangeSimMessage(answer, request.end.index, to_epoch=request.end.epoch)
        return [reply]

    def _decide(self, request: SealRequest) -> SealOutcome:
        stream, end = self.stream, request.end
        if end.epoch != stream.epoch or end.index != stream.last.index:
            return SealOutcome(request.request_id, stream.epoch, None)
        writer = stream.writer if request.new_writer is None else request.new_writer
        epoch = Epoch(stream.epoch + (request.new_writer is not None))
        suspect = end.suspect or request.unclean
        closed = replace(stream.last, end=end.end, suspect=suspect)
        opened = Range(
            index=RangeIndex(end.index + 1), start=end.end, epoch=epoch,
            replicas=self._place(writer, request.exclude),
        )  # fmt: skip
        self.ranges[-1:] = [closed, opened]
        self.directories[opened.index] = dict(self._current)
        named = self.directories[end.index]
        self.done |= {(end.index, node, named[node]) for node in request.done}
        kept = stream.ranges[:-1] if end.end == closed.start else (*stream.ranges[:-1], closed)
        self.stream = replace(stream, epoch=epoch, writer=writer, ranges=(*kept, opened))
        answer = SealOutcome(request.request_id, epoch, self.stream)
        self.answers[request.request_id] = answer
        return answer

    def _place(self, writer: NodeId, exclude: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """Replicas of the next range: the writer and others that are not excluded."""
        others = sorted(node for node in self._current if node not in (writer, *exclude))
        return (writer, *others)[: self._settings.replicas]
