"""The catalogue of ``cluster_sim``: decided in one place, seen by every node in its own time."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.placement.catalogue import Catalogue
from mainstem.placement.fact import Command
from mainstem.placement.records import AnyFact
from mainstem.placement.service import PlacementService

ReplyT = TypeVar("ReplyT")

SUBMIT_TIMEOUT_S = 5.0
DELAY_S = 0.01
# How many answers of a hundred get lost after the command was carried out.
LOST_PERCENT = 5


class _Memory:
    """A journal that forgets: the simulation itself never crashes."""

    snapshot_due = False
    next_index = 0

    async def append(self, entries: Sequence[bytes]) -> None:
        """Take a moment."""
        del entries
        await asyncio.sleep(DELAY_S)

    async def snapshot(self, state: bytes) -> None:
        """Never asked for."""

    def close(self) -> None:
        """Nothing to let go of."""


class SimCatalogue:
    """What was decided, in order."""

    def __init__(self, clock: Clock, rng: Random, on_fatal: Callable[[BaseException], None]):
        self.rng = rng
        self.facts: list[AnyFact] = []
        self.arrived = asyncio.Event()
        self.service = PlacementService(_Memory(), Catalogue(), clock, on_fatal)
        self.service.subscribe(self._decided)

    def _decided(self, fact: AnyFact) -> None:
        self.facts.append(fact)
        self.arrived.set()
        self.arrived = asyncio.Event()


class NodeCatalogue(PlacementService):
    """The catalogue as one node sees it: late, and not at all while it is cut off."""

    def __init__(
        self,
        centre: SimCatalogue,
        clock: Clock,
        on_fatal: Callable[[BaseException], None],
        is_reachable: Callable[[], bool],
    ) -> None:
        self._centre = centre
        self._is_reachable = is_reachable
        self._seen = len(centre.facts)
        known = Catalogue(centre.service.catalogue.state())
        super().__init__(_Memory(), known, clock, on_fatal)
        self._following = asyncio.get_running_loop().create_task(self._follow())

    def stop(self) -> None:
        """The node is dead."""
        self._following.cancel()

    async def submit(self, command: Command[ReplyT]) -> ReplyT:
        """Ask the centre, then wait until its facts are seen here."""
        try:
            async with asyncio.timeout(SUBMIT_TIMEOUT_S):
                await self._contact()
                outcome = await self._ask(command)
                count = len(self._centre.facts)
                while self._seen < count:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(DELAY_S)
        except TimeoutError:
            raise Unavailable(ErrorCode.TIMED_OUT, "the catalogue does not answer") from None
        if self._centre.rng.randrange(100) < LOST_PERCENT:
            raise Unavailable(ErrorCode.TIMED_OUT, "the answer got lost")
        if isinstance(outcome, MainstemError):
            raise outcome
        return outcome

    async def _ask(self, command: Command[ReplyT]) -> ReplyT | MainstemError:
        try:
            return await self._centre.service.submit(command)
        except MainstemError as error:
            return error

    async def _contact(self) -> None:
        await asyncio.sleep(self._centre.rng.random() * DELAY_S)
        while not self._is_reachable():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(DELAY_S)

    async def _follow(self) -> None:
        centre = self._centre
        while True:
            if self._seen == len(centre.facts):
                await centre.arrived.wait()
                continue
            await self._contact()
            fact = centre.facts[self._seen]
            self._seen += 1
            self._take(fact)
