"""Target nodes of a stream, given the state of nodes: failed ones replaced, missing ones added.

Pure. A node that is down for a while stays a target; only one that has failed for good (as
the caller decides) is replaced, by a node apart from the others. A stream that only a failed node
has stays there: it may come back, and no other node has the records.
"""

from collections.abc import Callable
from typing import Final

from mainstem.model.ids import NodeId
from mainstem.model.metadata import Stream, Topic
from mainstem.placement.planning import co_location
from mainstem.placement.planning.replica_placement import Replicas, scores, spread
from mainstem.placement.state.tables import CatalogueTables

INTERNAL_REPLICAS: Final = 3
"""Internal topics get so many replicas as soon as there are nodes for it."""


class Targets:
    """Computes the target replicas of a stream. ``gone`` are the nodes to be replaced."""

    def __init__(self, tables: CatalogueTables, is_gone: Callable[[NodeId], bool]) -> None:
        self._tables = tables
        self._live = [known.node for known in tables.nodes() if known.status == "live"]
        self.gone = frozenset(k.node.id for k in tables.nodes() if is_gone(k.node.id))

    def of(self, topic: Topic, stream: Stream) -> Replicas:
        """The target nodes of a stream."""
        wanted = stream.wanted
        kept = [node for node in wanted if node not in self.gone and self._is_known(node)]
        count = max(len(wanted), topic.replicas_wanted)
        if topic.internal:
            count = max(count, min(INTERNAL_REPLICAS, len(self._live)))
        if len(kept) == len(wanted) == count:
            return wanted
        leading = co_location.anchor(self._tables, topic)
        score = scores(stream.id if leading is None else leading.id)
        others = [node for node in self._live if node.id not in kept]
        beside = [known.node for node in kept if (known := self._tables.node(node)) is not None]
        # Loads change from one stream to the next, and these must have the same nodes.
        busy = self._tables.busy if leading is None else lambda _node: 0
        found = spread(others, beside, count - len(kept), lambda n: (busy(n.id), -score(n)))
        if not kept and not any(self._tables.is_live(node) for node in wanted):
            return wanted
        # A node that is down and cannot be replaced is kept; one that is draining has to go.
        down = [
            node
            for node in wanted
            if node not in kept and (known := self._tables.node(node)) and not known.draining
        ]
        spare = count - len(kept) - len(found)
        return (*kept, *found, *down[:spare]) or wanted

    def _is_known(self, node: NodeId) -> bool:
        return self._tables.node(node) is not None
