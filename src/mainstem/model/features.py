"""What the cluster can switch as a whole: its features, and the levels that they may have.

Clients choose how they behave by the levels that ApiVersions tells them, so that a level is a
switch between two ways of working and not a matter of what is stored.
"""

from collections.abc import Mapping

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest

GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
TRANSACTION_VERSION = "transaction.version"


class Feature(Struct, frozen=True):
    """The levels, both ends included, and the one that holds until somebody changes it."""

    lowest: int
    highest: int
    default: int


FEATURES = {
    GROUP_VERSION: Feature(0, 1, 1),  # groups that the coordinator assigns (KIP-848)
    SHARE_VERSION: Feature(0, 1, 1),  # groups that share records (KIP-932)
    TRANSACTION_VERSION: Feature(0, 2, 2),  # an epoch for every transaction (KIP-890)
}


def level_of(levels: Mapping[str, int], name: str) -> int:
    """The level that holds, given what was set."""
    return levels.get(name, FEATURES[name].default)


def check_levels(levels: Mapping[str, int]) -> None:
    """Refuse features that are not there and levels that they cannot have.

    Raises:
        InvalidRequest: see above.
    """
    for name, level in levels.items():
        feature = FEATURES.get(name)
        if feature is None:
            raise InvalidRequest(
                ErrorCode.INVALID_FEATURE_LEVEL,
                "there is no such feature",
                subject=name[:100],
                remedy=f"known are {', '.join(FEATURES)}",
            )
        if not feature.lowest <= level <= feature.highest:
            raise InvalidRequest(
                ErrorCode.INVALID_FEATURE_LEVEL,
                f"{level} is no level of it",
                subject=name,
                remedy=f"use {feature.lowest} to {feature.highest}",
            )
