"""Opens the streams that MQTT reads: here, or at the node that writes them."""

from collections.abc import Callable
from typing import Protocol

from mainstem.broker.api.broker import Broker
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.ids import StreamId
from mainstem.protocols.mqtt.streams.remote_stream_driver import RemoteStream
from mainstem.protocols.mqtt.streams.visibility import Batches

OpenFar = Callable[[StreamId, str], RemoteStream]


class TailPartition(Protocol):
    """The operations of a stream that MQTT uses."""

    id: StreamId
    topic: str
    closed: MainstemError | None
    start_offset: int
    last_stable: int

    def aborted_transactions(self, start: int, until: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions with records in [start, until)."""
        ...

    def read(
        self, offset: int, *, max_bytes: int, committed_only: bool, min_one: bool
    ) -> Batches | None:
        """Batches starting with the one that contains ``offset``; None if there is nothing yet."""
        ...

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever there is more to read."""
        ...

    def remove_waiter(self, wake: Callable[[], None]) -> None:
        """Remove ``wake``."""
        ...


class TailPartitions:
    """Opens readers of streams, on this node or on the writer's node.

    Without ``far`` there are no other nodes.
    """

    def __init__(self, broker: Broker, far: OpenFar | None) -> None:
        self._streams = broker.streams
        self._open_far = far

    def are_here(self, stream: StreamId, topic: str) -> bool:
        """Whether this node writes a stream."""
        try:
            self._streams.partition(topic, stream.partition)
        except MainstemError:
            return False
        return True

    def open(self, stream: StreamId, topic: str) -> TailPartition | None:
        """The stream as it can be read now; None if it cannot."""
        try:
            tail_partition = self._streams.partition(topic, stream.partition)
        except MainstemError as error:
            if error.code is not ErrorCode.NOT_WRITER or self._open_far is None:
                return None
            return self._open_far(stream, topic)
        return (
            None
            if tail_partition.closed is not None or tail_partition.id != stream
            else tail_partition
        )


class StreamNumbers:
    """Numbers for streams, valid while the node runs; their names are permanent."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    def of(self, stream: StreamId) -> int:
        """The number of a stream."""
        name = name_of(stream)
        number = self._numbers.setdefault(name, len(self._numbers))
        self.names[number] = name
        return number


def name_of(stream: StreamId) -> str:
    """The permanent name of a stream, unique even if a topic name is reused."""
    return f"{stream.topic.hex()}-{stream.partition}"


def leave(tail_partition: TailPartition, wake: Callable[[], None]) -> None:
    """Stop reading a stream."""
    tail_partition.remove_waiter(wake)
    if isinstance(tail_partition, RemoteStream):
        tail_partition.close()
