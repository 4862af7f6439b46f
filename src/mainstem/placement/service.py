"""The placement service: look-ups use its catalogue, changes are submitted as commands.

``decision_driver`` turns commands into facts. On a single node facts become durable
in a journal, which is all that is here; in a cluster a Raft group replaces
it (``raft_service``). A journal that fails stops the node.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from mainstem.model.clock import Clock
from mainstem.placement.catalogue_replay import CatalogueReplay, Listener
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import AnyFact
from mainstem.placement.command_queue_driver import PendingCommand
from mainstem.placement.decision_driver import DecisionDriver
from mainstem.placement.persistence.journal_storage import StoredJournal
from mainstem.placement.state.catalogue import Catalogue
from mainstem.placement.state.decoding import read_fact, read_state

ReplyT = TypeVar("ReplyT")

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class PlacementService(Protocol):
    """The catalogue as the rest of a node uses it."""

    @property
    def catalogue(self) -> Catalogue:
        """The durable state that this node knows."""
        ...

    @property
    def replay(self) -> CatalogueReplay:
        """Replays durable facts, and has their listeners."""
        ...

    @property
    def next_index(self) -> int:
        """The number of the next append."""
        ...

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with every fact once it is durable and replayed; how to cancel that."""
        ...

    def check(self, command: Command[ReplyT]) -> ReplyT:
        """The reply of ``submit`` if it were decided now; changes nothing. Raises its refusals."""
        ...

    async def submit(self, command: Command[ReplyT]) -> ReplyT:
        """Decide a command; the reply, once its facts are durable and every listener has them.

        A caller that gives up waiting does not withdraw the command.
        """
        ...

    async def confirm(self, timeout_s: float) -> None:
        """Return once it is certain that this node knows all that was decided.

        Raises:
            Unavailable: no majority confirmed that in time.
        """
        ...

    async def close(self) -> None:
        """Finish what was submitted, then refuse."""
        ...


class Journal(Protocol):
    """Where facts become durable."""

    @property
    def snapshot_due(self) -> bool:
        """Whether a snapshot is due."""
        ...

    @property
    def next_index(self) -> int:
        """The number of the next append; it only grows, over restarts too."""
        ...

    async def append(self, entries: Sequence[bytes]) -> None:
        """Return once the entries are committed, all or none."""
        ...

    async def snapshot(self, state: bytes) -> None:
        """Replace everything appended so far by ``state``."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


def replayed(stored: StoredJournal, subject: str) -> Catalogue:
    """The catalogue that a journal, named by ``subject``, holds.

    Raises:
        UnknownVersion: it holds something that this release does not know.
    """
    catalogue = Catalogue(read_state(stored.snapshot, subject) if stored.snapshot else None)
    for frame in stored.frames:
        for line in frame.split(b"\n"):
            catalogue.replay(read_fact(line, subject))
    if catalogue.ignored:
        _log.warning("facts in the journal no longer applied: %s", dict(catalogue.ignored))
    return catalogue


class LonePlacementService:
    """The placement service of a single node, with its catalogue in its journal."""

    def __init__(
        self,
        journal: Journal,
        catalogue: Catalogue,
        clock: Clock,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.catalogue = catalogue
        self._journal = journal
        self.replay = CatalogueReplay(catalogue, clock)
        recorder = _JournalRecorder(journal, self.replay)
        self._decisions = DecisionDriver(catalogue, recorder, clock, on_fatal)

    @property
    def next_index(self) -> int:
        """The number of the next append."""
        return self._journal.next_index

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """See ``PlacementService``."""
        return self.replay.subscribe(listener)

    def check(self, command: Command[ReplyT]) -> ReplyT:
        """See ``PlacementService``."""
        return self.replay.check(command)

    async def submit(self, command: Command[ReplyT]) -> ReplyT:
        """See ``PlacementService``."""
        reply: ReplyT = await self._decisions.decided(PendingCommand(command, "", None))
        return reply

    async def confirm(self, timeout_s: float) -> None:
        """Nothing to do: a single node always decides on its current state."""

    async def close(self) -> None:
        """Finish what was submitted, then refuse."""
        await self._decisions.close()
        self._journal.close()


class _JournalRecorder:
    """Facts in a journal: an append that returns is committed, one that fails ends the node."""

    term = None

    def __init__(self, journal: Journal, replay: CatalogueReplay) -> None:
        self._journal = journal
        self._replay = replay

    async def is_settled(self) -> bool:
        """True: an append never has an unknown outcome."""
        return True

    async def confirm_decided(self) -> None:
        """Nothing to do: no other node decides."""

    async def record(self, facts: Sequence[AnyFact]) -> None:
        """Make facts durable and replay them."""
        await self._journal.append([_encode(fact) for fact in facts])
        for fact in facts:
            self._replay.take(fact)

    async def snapshot_if_due(self) -> None:
        """Take a snapshot when the journal is long."""
        if self._journal.snapshot_due:
            await self._journal.snapshot(_encode(self._replay.catalogue.state()))
