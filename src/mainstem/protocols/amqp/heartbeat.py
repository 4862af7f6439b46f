"""Heartbeats: one is sent every half interval; a silent client is disconnected."""

from collections.abc import Callable
from typing import Final

from mainstem.protocols.runner import Runner
from mainstem.protocols.send_batch import SendBatch
from mainstem.wire.amqp.frames import HEARTBEAT_FRAME

SILENT_TICKS_MAX: Final = 4  # of half an interval each


class Heartbeat:
    """The heartbeat of one connection; sent until ``is_over``.

    ``is_deaf``: reading from the client is paused, so its silence is not counted.
    """

    def __init__(
        self,
        out: SendBatch,
        runner: Runner,
        *,
        is_over: Callable[[], bool],
        is_deaf: Callable[[], bool],
        missed: Callable[[], None],
    ) -> None:
        self._out = out
        self._runner = runner
        self._is_over = is_over
        self._is_deaf = is_deaf
        self._missed = missed
        self._interval_ms = 0
        self.silent_ticks = 0  # since the last bytes from the client

    def start(self, interval_s: int) -> None:
        """Start sending; 0 disables heartbeats."""
        self._interval_ms = interval_s * 500
        if interval_s:
            self._runner.later(self._interval_ms, self._beat)

    def _beat(self) -> None:
        if self._is_over():
            return
        self.silent_ticks = 0 if self._is_deaf() else self.silent_ticks + 1
        if self.silent_ticks > SILENT_TICKS_MAX:
            self._missed()
            return
        if not self._out.has_sent:
            self._out.write(HEARTBEAT_FRAME)
            self._out.flush()
        self._out.has_sent = False
        self._runner.later(self._interval_ms, self._beat)
