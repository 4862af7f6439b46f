"""Finds the ranges in the folders of a data directory, to rebuild a lost catalogue."""

import logging
from collections.abc import Iterator

from mainstem.log.identity import read_range_header
from mainstem.log.store import LogStore
from mainstem.model.errors import Corrupt
from mainstem.placement.persistence.rebuilding import RebuildableRange

log = logging.getLogger(__name__)


def discover_ranges(store: LogStore) -> Iterator[RebuildableRange]:
    """Every readable range folder with its end offset; unreadable ones are logged."""
    for found in store.scan():
        name = found.name
        try:
            header = read_range_header(found.directory)
            held = store.open_range(
                name.stream,
                name.topic_name,
                name.index,
                epoch=header.epoch,
                start_offset=header.start_offset,
                generation=name.generation,
            )
        except (Corrupt, FileNotFoundError) as error:
            log.warning("left out of the rebuilt catalogue: %s (%s)", found.directory, error)
            continue
        yield RebuildableRange(
            topic=name.topic_name,
            topic_id=name.stream.topic,
            partition=name.stream.partition,
            index=name.index,
            generation=name.generation,
            epoch=header.epoch,
            start=header.start_offset,
            end=held.written_end,
            size_bytes=held.size_bytes,
            max_timestamp=held.max_timestamp,
            max_timestamp_offset=held.offset_of_max_timestamp,
        )
        held.close(sync=False)
