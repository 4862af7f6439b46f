"""Which versions of the protocol between nodes a release supports, and which one two nodes use.

| version | since | what it adds |
|---|---|---|
| 1 | 0.1 | frames without protection after the handshake |
| 2 | 0.2 | ranges of versions, proofs over the whole handshake, a tag on every frame |

Both sides offer a range and use the highest version that both speak. A release before 0.2 offers
one number and refuses any other, so the number in front of an offer stays the lowest of the range.
"""

from typing import Final, NamedTuple

from mainstem.model.errors import Corrupt
from mainstem.model.ids import NodeId

LOWEST_VERSION: Final = 1
HIGHEST_VERSION: Final = 2
FRAMES_PROTECTED_SINCE: Final = 2


class NoCommonVersion(Corrupt):
    """Two nodes are too many releases apart."""


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        if self.lowest == self.highest:
            return f"version {self.lowest}"
        return f"versions {self.lowest} to {self.highest}"


OWN_VERSIONS: Final = Versions(LOWEST_VERSION, HIGHEST_VERSION)


def common_version(own: Versions, other: Versions, node: NodeId) -> int:
    """The version that this node and another one use.

    Raises:
        NoCommonVersion: there is none.
    """
    version = min(own.highest, other.highest)
    if version >= max(own.lowest, other.lowest):
        return version
    if other.highest < own.lowest:
        remedy = f"install the release that this node runs on node {node}"
    else:
        remedy = f"install the release that node {node} runs on this node"
    raise NoCommonVersion(
        f"node {node} speaks {other} of the protocol between nodes, this node speaks {own}",
        subject=f"node {node}",
        remedy=f"{remedy}; nodes of a cluster may be one release apart (docs/guides/cluster.md)",
    )
