"""The catalogue of one node and the listeners to its facts: durable facts are replayed here."""

import logging
from collections.abc import Callable
from typing import TypeVar

from mainstem.model.clock import Clock
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import AnyFact
from mainstem.placement.state.catalogue import Catalogue

ReplyT = TypeVar("ReplyT")

IGNORED_LOG_INTERVAL_S = 60.0

Listener = Callable[[AnyFact], None]

_log = logging.getLogger(__name__)


class CatalogueReplay:
    """Replays facts into ``catalogue`` once they are durable, and notifies the listeners."""

    def __init__(self, catalogue: Catalogue, clock: Clock) -> None:
        self.catalogue = catalogue
        self._clock = clock
        self.listeners: list[Listener] = []
        self._ignored_logged_s = float("-inf")

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with every fact once it is durable and replayed; how to cancel that."""
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def check(self, command: Command[ReplyT]) -> ReplyT:
        """The reply to a command if it were decided now; changes nothing. Raises its refusals."""
        return self.catalogue.decide(command, self._clock.wall_ms()).reply

    def take(self, fact: AnyFact) -> None:
        """Replay a durable fact and notify the listeners, unless it no longer applies."""
        if not self.catalogue.replay(fact):
            self._log_ignored(fact)
            return
        for listener in tuple(self.listeners):
            listener(fact)

    def _log_ignored(self, fact: AnyFact) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._ignored_logged_s >= IGNORED_LOG_INTERVAL_S:
            self._ignored_logged_s = now_s
            _log.warning(
                "a recorded %s no longer applies and was ignored; ignored so far: %s",
                type(fact).__name__,
                dict(self.catalogue.ignored),
            )
