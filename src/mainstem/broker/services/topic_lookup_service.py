"""Topics looked up for those who change them, on a node that may lag behind the catalogue."""

from typing import TypeVar

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.metadata import Topic
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.service import PlacementService

ReplyT = TypeVar("ReplyT")

CONFLICTS_MAX = 10
# How long a node waits to read the newest catalogue before it refuses for what it does not know.
CATCH_UP_TIMEOUT_S = 5.0


class TopicLookup:
    """Finds topics in the catalogue and has changes of them decided."""

    def __init__(self, placement: PlacementService) -> None:
        self._placement = placement
        self._catalogue = placement.catalogue

    async def found(self, name: str) -> Topic:
        """The topic; a node says that there is none only after it has read the whole catalogue.

        Raises:
            InvalidRequest: there is none.
            Unavailable: this node cannot learn whether there is.
        """
        if self._catalogue.topic(name) is None:
            await self.catch_up()
        return self.need(name)

    def need(self, name: str) -> Topic:
        """The topic, as far as this node has heard.

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
            Unavailable: that did not work in time.
        """
        await self._placement.confirm(CATCH_UP_TIMEOUT_S)

    async def decide(self, command: Command[ReplyT], *, validate_only: bool) -> ReplyT:
        """Have a command decided, or only say what would be answered now."""
        if validate_only:
            return self._placement.check(command)
        return await self._placement.submit(command)


def unknown_topic(name: str) -> InvalidRequest:
    """The refusal of a topic that is not there."""
    return InvalidRequest(ErrorCode.UNKNOWN_TOPIC, f"there is no topic {name!r}", subject=name)


def too_many_changes(subject: str) -> Unavailable:
    """The refusal of a change that others kept overtaking."""
    return Unavailable(ErrorCode.TIMED_OUT, "it keeps being changed by others", subject=subject)
