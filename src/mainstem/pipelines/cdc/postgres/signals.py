"""Finds signals among the slot's messages: new rows of a signal table, and messages. Pure."""

import logging
from collections.abc import Iterator, Sequence

from mainstem.pipelines.cdc.postgres import pgoutput
from mainstem.pipelines.cdc.signals import PREFIX, Signal, from_message, from_row

_log = logging.getLogger(__name__)


def signals_in(found: Sequence[tuple[int, int, bytes]], since: int, until: int) -> Iterator[Signal]:
    """Signals of transactions that ended after ``since`` up to ``until``."""
    waiting: list[Signal] = []
    for _, lsn, data in found:
        message = pgoutput.parse(data)
        if isinstance(message, pgoutput.Commit):
            if since < message.end_lsn <= until:
                yield from waiting
            waiting = []
            continue
        signal = _signal(message)
        if signal is None:
            continue
        if isinstance(message, pgoutput.LogicalMessage) and not message.is_transactional:
            if since < lsn <= until:
                yield signal
        else:
            waiting.append(signal)


def _signal(message: pgoutput.Event | None) -> Signal | None:
    try:
        if isinstance(message, pgoutput.LogicalMessage) and message.prefix == PREFIX:
            return from_message(message.content)
        if isinstance(message, pgoutput.RowChange) and message.new is not None:
            return from_row(
                [each.decode() if isinstance(each, bytes) else None for each in message.new]
            )
    except ValueError as error:
        _log.warning("%s", error)
    return None
