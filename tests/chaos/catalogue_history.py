"""Judges what clients saw of commands to the catalogue: those to topics, to configs and to users.

Every subject has one client that sends its commands one after the other, so that the history of a
subject is a line: what it may look like at the end follows from the outcomes. A command whose
outcome is unknown may have been carried out, once, or not at all.

| subject | state | commands |
|---|---|---|
| topic | its partitions | create, grow, delete |
| config of a topic | its value | set |
| user | the iterations of its SCRAM credential | put, delete |
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from tests.chaos.history import Anomaly, Outcome

ABSENT = 0


class CatalogueKind(StrEnum):
    """What can be wrong with the history of a subject."""

    WRONG_STATE = "a subject is not as any possible order of its commands leaves it"
    FALSE_REFUSAL = "a command was refused that no possible state of its subject refuses"


@dataclass(slots=True)
class CatalogueCommand:
    """A command as its client sent it; ``state`` is what it leaves the subject in."""

    name: str
    state: int
    outcome: Outcome = Outcome.UNKNOWN
    answer: str = ""


@dataclass(slots=True)
class CatalogueHistory:
    """The commands to one subject in order, and its last state; None if nobody could see it."""

    subject: str
    kind: str = "topics"
    commands: list[CatalogueCommand] = field(default_factory=list)
    final: int | None = None


def check_subject(history: CatalogueHistory) -> Iterable[Anomaly]:
    """Every broken rule."""
    possible = {ABSENT}
    for command in history.commands:
        accepting = {state for state in possible if _accepts(command, state)}
        if command.outcome is Outcome.OK:
            possible = {command.state}
        elif command.outcome is Outcome.UNKNOWN:
            possible |= {command.state} if accepting else set()
        else:
            refusing = possible - accepting
            if not refusing:
                detail = f"{command.name} {command.state} at {possible}: {command.answer}"
                yield Anomaly(CatalogueKind.FALSE_REFUSAL, (history.subject, 0), detail)
            possible = refusing or possible
    if history.final is not None and history.final not in possible:
        detail = f"{history.final} in {history.kind}, possible are {sorted(possible)}"
        yield Anomaly(CatalogueKind.WRONG_STATE, (history.subject, 0), detail)


def _accepts(command: CatalogueCommand, state: int) -> bool:
    if command.name in ("set", "put"):
        return True
    if command.name == "create":
        return state == ABSENT
    if command.name == "grow":
        return ABSENT < state < command.state
    return state != ABSENT
