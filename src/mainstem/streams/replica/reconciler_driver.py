"""The ranges of replicated streams on this disk: opened, completed and dropped by the catalogue.

Guarantees: a range is dropped only when the catalogue no longer assigns it to this node; a sealed
range is cut to its end before it can be read to the end.
"""

import asyncio
from collections.abc import Callable

from mainstem.log.naming import RangeName, range_directory
from mainstem.log.range_log import RangeLog
from mainstem.model.errors import Unavailable
from mainstem.model.ids import RangeIndex, StreamId
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.streams.context import StreamsContext
from mainstem.streams.replica.copy_driver import CopyDriver
from mainstem.streams.replica.messages import RangeKey, key_of
from mainstem.streams.replica.service import ReplicaService
from mainstem.streams.storage_retry_driver import RETRY_S, refusal_of
from mainstem.streams.writer.stream_driver import StreamWriter


class ReplicaReconciler:
    """Opens, completes and drops replicas as the catalogue decides.

    Args:
        context: the services of the node.
        replicas: the replicas on this node.
        writer_of: the stream, if this node writes it.
    """

    def __init__(
        self,
        context: StreamsContext,
        replicas: ReplicaService,
        writer_of: Callable[[StreamId], StreamWriter | None],
    ) -> None:
        self._context = context
        self._replicas = replicas.registry
        self._writer_of = writer_of
        self._copies = CopyDriver(context, replicas, self._replaced)
        # Ranges that are copied again as soon as the writer on this node has moved past them.
        self._postponed: set[RangeKey] = set()
        self._is_closed = False

    def reconcile(self, topic: Topic, stream: Stream) -> None:
        """Open all ranges of a stream that are assigned to this node, and drop the others."""
        node = self._context.node
        writer = self._writer_of(stream.id)
        if writer is not None and writer.replication is None:
            return  # no other node has anything of it
        wanted: set[RangeIndex] = set()
        for range_info in stream.ranges:
            if node not in range_info.replicas and node not in range_info.replicating:
                continue
            wanted.add(range_info.index)
            if writer is not None and _writes(writer, range_info.index):
                continue  # its writer continues from there by itself, and reports
            if range_info.is_open:
                self._replicas.hold(topic, stream, range_info)
                continue
            if (key := key_of(stream.id, range_info.index)) in self._postponed:
                self.begin_anew(stream.id, range_info.index)
                self._postponed.discard(key)
            self._reconcile_sealed(topic, stream, range_info)
        self._drop_unwanted(stream, wanted)

    def _reconcile_sealed(self, topic: Topic, stream: Stream, range_info: Range) -> None:
        node = self._context.node
        is_recorded = node in range_info.holders and node not in range_info.replicating
        if range_info.generation:
            if not is_recorded:
                self._copies.reconcile(topic, stream, range_info)
            elif (
                not self._replicas.is_there(topic, stream, range_info)
                or self._replicas.log_of(topic, stream, range_info).damage
            ):
                self._copies.report_lost(key_of(stream.id, range_info.index))
            elif self._writer_of(stream.id) is None:
                self._drop_older(topic, stream, range_info)
            return
        log = self._replicas.log_of(topic, stream, range_info)
        assert range_info.end is not None, "a range is open or has an end"
        if is_recorded and (log.written_end < range_info.end or log.damage):
            self._copies.report_lost(key_of(stream.id, range_info.index))
            return
        if not is_recorded and log.damage and range_info.holders:
            self.begin_anew(stream.id, range_info.index)  # the copy here could never be completed
        if not is_recorded or not log.sealed:
            self._copies.reconcile(topic, stream, range_info)

    def _drop_older(self, topic: Topic, stream: Stream, range_info: Range) -> None:
        """A range was rewritten: its former generation is no longer read."""
        store = self._context.store
        for generation in range(range_info.generation):
            name = RangeName(stream.id, topic.name, range_info.index, generation)
            old = store.logs.get(range_directory(store.data_dir, name))
            if old is not None:
                self._copies.stop(key_of(stream.id, range_info.index))
                self._replicas.forget(stream.id, range_info.index)
                store.drop_range(old)

    def lost(self, stream: StreamId, index: RangeIndex) -> None:
        """Damage was found in a sealed range: it is copied again, if others have it."""
        self._copies.report_lost(key_of(stream, index))

    def wanted(self, log: RangeLog) -> None:
        """A reader needs a range that is still to be copied: do not delay that."""
        name = log.identity.name
        self._copies.pauses.cut_short(key_of(name.stream, RangeIndex(name.index)))

    def begin_anew(self, stream: StreamId, index: RangeIndex) -> None:
        """The copy of a range does not count: it is copied from its start.

        The writer of the stream may not know yet that the range is sealed: until it has read what
        continues in the next range, the files stay.
        """
        topic = self._context.placement.catalogue.need_topic(stream.topic)
        known = topic.streams[stream.partition]
        range_info = next((one for one in known.ranges if one.index == index), None)
        self._copies.stop(key_of(stream, index))
        writer = self._writer_of(stream)
        if writer is not None and _writes(writer, index):
            self._postponed.add(key_of(stream, index))
            return
        if (
            range_info is None
            or range_info.generation
            or not self._replicas.is_there(topic, known, range_info)
        ):
            return  # a rewritten range is replaced as a whole when its copy is complete
        old = self._replicas.log_of(topic, known, range_info)
        self._replicas.forget(stream, index)
        self._context.store.drop_range(old)
        self._renew(stream, index, old)

    def _renew(self, stream: StreamId, index: RangeIndex, old: RangeLog) -> None:
        """Open a dropped range again, empty, as soon as this node's storage allows."""
        topic = self._context.placement.catalogue.topic_by_id(stream.topic)
        known = self._context.placement.catalogue.stream(stream)
        if self._is_closed or topic is None or known is None:
            return
        range_info = next((one for one in known.ranges if one.index == index), None)
        if range_info is None:
            return
        try:
            fresh = self._replicas.log_of(topic, known, range_info)
        except (Unavailable, OSError) as error:
            if refusal_of(error) is None:
                raise
            asyncio.get_running_loop().call_later(RETRY_S, self._renew, stream, index, old)
            return
        fresh.missing = not fresh.sealed  # it may have been copied meanwhile
        self._replaced(stream, old, fresh)

    def _replaced(self, stream: StreamId, old: RangeLog, fresh: RangeLog) -> None:
        writer = self._writer_of(stream)
        if writer is not None and old in writer.ranges:
            writer.replace_ranges([old], fresh, writer.known)

    def forget(self, stream: StreamId) -> None:
        """A stream was deleted, and its files with it."""
        self._copies.stop_stream(stream)
        self._postponed = {key for key in self._postponed if key.stream != stream}
        self._replicas.forget_stream(stream)

    def close(self) -> None:
        """End everything that is under way."""
        self._is_closed = True
        self._copies.close()

    def _drop_unwanted(self, stream: Stream, wanted: set[RangeIndex]) -> None:
        writer = self._writer_of(stream.id)
        for index, log in self._replicas.logs_of(stream.id).items():
            if index in wanted or index > stream.last.index:
                continue
            if writer is not None and log in writer.ranges:
                continue  # its writer closes it first
            self._copies.stop(key_of(stream.id, index))
            self._replicas.forget(stream.id, index)
            self._context.store.drop_range(log)


def _writes(writer: StreamWriter, index: RangeIndex) -> bool:
    """Whether the writer has not moved on to a range behind this one."""
    return writer.replication is not None and index >= writer.log.identity.name.index
