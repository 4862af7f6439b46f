"""Finds topics that are to be changed, on a node that may lag behind the catalogue."""

from typing import TypeVar

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.metadata import Topic
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.service import PlacementService

ReplyT = TypeVar("ReplyT")

CONFLICTS_MAX = 10
# How long a node waits to read the newest catalogue before it refuses an unknown topic.
CATCH_UP_TIMEOUT_S = 5.0


class TopicLookup:
    """Finds topics in the catalogue and has changes of them decided."""

    def __init__(self, placement: PlacementService) -> None:
        self._placement = placement
        self._catalogue = placement.catalogue

    async def found(self, name: str) -> Topic:
        """The topic; refused as unknown only after the node has read the newest catalogue.

        Raises:
            InvalidRequest: there is none.
            Unavailable: this node cannot read the newest catalogue.
        """
        if self._catalogue.topic(name) is None:
            await self.catch_up()
        return self.need(name)

    def need(self, name: str) -> Topic:
        """The topic, as far as this node has replayed.

        Raises:
            InvalidRequest: there is none.
        """
        topic = self._catalogue.topic(name)
        if topic is None:
            raise unknown_topic(name)
        return topic

    async def catch_up(self) -> None:
        """Read the newest catalogue.

        Raises:
            Unavailable: it could not be read in time.
        """
        await self._placement.confirm(CATCH_UP_TIMEOUT_S)

    async def decide(self, command: Command[ReplyT], *, validate_only: bool) -> ReplyT:
        """Have a command decided, or only return what would be answered now."""
        if validate_only:
            return self._placement.check(command)
        return await self._placement.submit(command)


def unknown_topic(name: str) -> InvalidRequest:
    """The refusal of an unknown topic."""
    return InvalidRequest(ErrorCode.UNKNOWN_TOPIC, f"there is no topic {name!r}", subject=name)


def too_many_changes(subject: str) -> Unavailable:
    """The refusal of a change that kept conflicting with others."""
    return Unavailable(
        ErrorCode.TIMED_OUT, "it was changed concurrently too often", subject=subject
    )
