"""Decodes facts and states of the catalogue, of whichever release wrote them.

Everything read must be known completely: a node that skipped a field would write a snapshot without
it. New facts and fields are written only at the level of ``mainstem.version`` that added them, so
that an unknown one belongs to a level which this release does not support.
"""

import contextlib
from typing import NoReturn

import msgspec

from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import UnknownVersion
from mainstem.model.features import MAINSTEM_VERSION, OWN_LEVELS, check_readable
from mainstem.placement.changes.commands import AnyFact, CatalogueState, FeaturesSet


class _Tagged(msgspec.Struct, frozen=True):
    """The fields that every fact of any release has."""

    type: str


class _Levels(msgspec.Struct, frozen=True):
    """The fields that the state of any release has."""

    features: dict[str, int] = {}


_facts = msgspec.json.Decoder(AnyFact)
_states = msgspec.json.Decoder(CatalogueState)
_tags = msgspec.json.Decoder(_Tagged)
_levels = msgspec.json.Decoder(_Levels)


def read_fact(line: bytes, subject: str) -> AnyFact:
    """One fact.

    Args:
        line: its bytes, whose checksum was verified.
        subject: where it was found.

    Raises:
        UnknownVersion, InvalidRequest: it is of a level that this release does not support.
    """
    try:
        fact: AnyFact = _facts.decode(line)
    except DECODE_ERRORS as error:
        try:
            name = _tags.decode(line).type
        except DECODE_ERRORS:
            name = "without a type"
        _refuse(f"a fact {name} ({error})", subject, error)
    if isinstance(fact, FeaturesSet):
        check_readable(fact.levels, subject)
    return fact


def read_state(data: bytes, subject: str) -> CatalogueState:
    """A whole catalogue; arguments and refusals as for ``read_fact``."""
    try:
        state = _states.decode(data)
    except DECODE_ERRORS as error:
        with contextlib.suppress(*DECODE_ERRORS):
            check_readable(_levels.decode(data).features, subject)
        _refuse(f"a catalogue ({error})", subject, error)
    check_readable(state.features, subject)
    return state


def _refuse(what: str, subject: str, error: Exception) -> NoReturn:
    lowest, highest = OWN_LEVELS
    known = f"{lowest} to {highest} of {MAINSTEM_VERSION}"
    raise UnknownVersion(what, f"above {highest}", known, subject=subject) from error
