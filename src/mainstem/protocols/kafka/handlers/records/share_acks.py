"""Acknowledgements of share groups: converts inclusive ranges of the wire to half-open ones.

A partition with an invalid acknowledgement is refused as a whole, before any of them is applied.
"""

from collections.abc import Iterable, Sequence

from mainstem.broker.api.share_groups import AckRange, AckType
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.wire.kafka.messages import share_acknowledge as acking
from mainstem.wire.kafka.messages import share_fetch as fetching

Batches = Sequence[acking.AcknowledgementBatch] | Sequence[fetching.AcknowledgementBatch]
Topics = Iterable[acking.AcknowledgeTopic] | Iterable[fetching.FetchTopic]


class Acks:
    """The acknowledgements of one request, by partition: accepted and refused ones."""

    def __init__(self, topics: Topics, *, renews: bool) -> None:
        self.named: list[StreamId] = []
        self.taken: dict[StreamId, list[AckRange]] = {}
        self.refused: dict[StreamId, MainstemError] = {}
        newest = AckType.RENEW if renews else AckType.REJECT
        for topic in topics:
            for part in topic.partitions:
                stream = stream_of(topic.topic_id, part.partition_index)
                self.named.append(stream)
                batches = part.acknowledgement_batches
                if not batches:
                    continue
                try:
                    ranges = _ranges(batches, newest, self.taken.get(stream, []))
                except MainstemError as error:
                    self.refused[stream] = error
                else:
                    self.taken[stream] = ranges
        for stream in self.refused:
            self.taken.pop(stream, None)


def stream_of(topic_id: bytes, partition: int) -> StreamId:
    """The stream id of a partition."""
    return StreamId(TopicId(topic_id), PartitionIndex(partition))


def _ranges(batches: Batches, newest: int, before: list[AckRange]) -> list[AckRange]:
    ranges = list(before)
    for batch in batches:
        count = batch.last_offset - batch.first_offset + 1
        types = batch.acknowledge_types
        if batch.first_offset < 0 or count < 1:
            raise _refusal(f"it ends at {batch.last_offset}, before {batch.first_offset}")
        if ranges and batch.first_offset < ranges[-1].until:
            raise _refusal(f"{batch.first_offset} is acknowledged twice, or out of order")
        if len(types) not in (1, count):
            raise _refusal(f"{len(types)} types for {count} records")
        if not all(AckType.GAP <= each <= newest for each in types):
            raise _refusal(f"types are {AckType.GAP:d} to {newest:d} in this request")
        ranges.append(AckRange(batch.first_offset, batch.last_offset + 1, tuple(types)))
    return ranges


def _refusal(cause: str) -> InvalidRequest:
    return InvalidRequest(ErrorCode.INVALID_REQUEST, cause, subject="acknowledgement batch")
