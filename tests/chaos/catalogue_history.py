"""Judges what clients saw of commands to the catalogue: creating, growing and deleting topics.

Every topic has one client that sends its commands one after the other, so that the history of a
topic is a line: what it may look like at the end follows from the outcomes. A command whose outcome
is unknown may have been carried out, once, or not at all.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from tests.chaos.history import Anomaly, Outcome


class CatalogueKind(StrEnum):
    """What can be wrong with the history of a topic."""

    WRONG_STATE = "a topic is not as any possible order of its commands leaves it"
    FALSE_REFUSAL = "a command was refused that no possible state of the topic refuses"


@dataclass(slots=True)
class TopicCommand:
    """A command as its client sent it; ``partitions`` is what the topic has after it, or 0."""

    name: str
    partitions: int
    outcome: Outcome = Outcome.UNKNOWN
    answer: str = ""


@dataclass(slots=True)
class TopicHistory:
    """The commands to one topic in order, and how many partitions it had at the end (0: gone)."""

    topic: str
    commands: list[TopicCommand] = field(default_factory=list)
    final: int | None = None


def check_topic(history: TopicHistory) -> Iterable[Anomaly]:
    """Every broken rule."""
    possible = {0}
    for command in history.commands:
        accepting = {count for count in possible if _accepts(command, count)}
        if command.outcome is Outcome.OK:
            possible = {command.partitions}
        elif command.outcome is Outcome.UNKNOWN:
            possible |= {command.partitions} if accepting else set()
        else:
            refusing = possible - accepting
            if not refusing:
                detail = f"{command.name} {command.partitions} at {possible}: {command.answer}"
                yield Anomaly(CatalogueKind.FALSE_REFUSAL, (history.topic, 0), detail)
            possible = refusing or possible
    if history.final is not None and history.final not in possible:
        detail = f"{history.final} partitions, possible are {sorted(possible)}"
        yield Anomaly(CatalogueKind.WRONG_STATE, (history.topic, 0), detail)


def _accepts(command: TopicCommand, partitions: int) -> bool:
    if command.name == "create":
        return partitions == 0
    if command.name == "grow":
        return 0 < partitions < command.partitions
    return partitions > 0
