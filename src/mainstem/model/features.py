"""The cluster-wide features, and the levels that they may have.

Clients choose how they behave by the levels in ApiVersions. ``mainstem.version`` is the one that
concerns nodes and not clients: it defines which facts, fields, records and files nodes may write,
as Kafka's ``metadata.version`` does. It is raised when every node can read them, and never lowered,
because what was written stays.
"""

from collections.abc import Mapping

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.release import RELEASE

MAINSTEM_VERSION = "mainstem.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
TRANSACTION_VERSION = "transaction.version"


class Feature(Struct, frozen=True):
    """The levels, both ends included, and the default one."""

    lowest: int
    highest: int
    default: int


FEATURES = {
    MAINSTEM_VERSION: Feature(1, 2, 1),  # what nodes write: 1 as release 0.1, 2 as release 0.2
    GROUP_VERSION: Feature(0, 1, 1),  # groups that the coordinator assigns (KIP-848)
    SHARE_VERSION: Feature(0, 1, 1),  # groups that share records (KIP-932)
    TRANSACTION_VERSION: Feature(0, 2, 2),  # an epoch for every transaction (KIP-890)
}

Levels = tuple[int, int]

LEVELS_OF_0_1: Levels = (1, 1)
"""The levels of a node that registers without them, as release 0.1 does."""
OWN_LEVELS: Levels = (FEATURES[MAINSTEM_VERSION].lowest, FEATURES[MAINSTEM_VERSION].highest)
"""The levels of ``mainstem.version``, both ends included, that this release reads and writes."""


def level_of(levels: Mapping[str, int], name: str) -> int:
    """The effective level, given what was set."""
    return levels.get(name, FEATURES[name].default)


def check_levels(levels: Mapping[str, int]) -> None:
    """Refuse unknown features and levels that they cannot have.

    Raises:
        InvalidRequest: a feature is unknown, or a level is out of range.
    """
    for name, level in levels.items():
        feature = FEATURES.get(name)
        if feature is None:
            raise InvalidRequest(
                ErrorCode.INVALID_FEATURE_LEVEL,
                "unknown feature",
                subject=name[:100],
                remedy=f"known are {', '.join(FEATURES)}",
            )
        if not feature.lowest <= level <= feature.highest:
            raise InvalidRequest(
                ErrorCode.INVALID_FEATURE_LEVEL,
                f"{level} is not a level of it",
                subject=name,
                remedy=f"use {feature.lowest} to {feature.highest}",
            )


def check_readable(levels: Mapping[str, int], subject: str) -> None:
    """Refuse what was written at a level of ``mainstem.version`` that this release does not read.

    Args:
        levels: what was set in the cluster.
        subject: what is about to be read.

    Raises:
        InvalidRequest: the level is outside of ``OWN_LEVELS``.
    """
    level = level_of(levels, MAINSTEM_VERSION)
    lowest, highest = OWN_LEVELS
    if not lowest <= level <= highest:
        side = "later" if level > highest else "earlier"
        raise InvalidRequest(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the cluster is at {MAINSTEM_VERSION} {level}, mainstem {RELEASE} reads levels "
            f"{lowest} to {highest}",
            subject=subject,
            remedy=f"start a {side} release, one that supports {MAINSTEM_VERSION} {level}",
        )
