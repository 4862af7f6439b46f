"""Administration of the cluster as a whole over the HTTP API."""

from typing import Any

from mainstem.client.rest_admin import RestAdmin


class RestCluster:
    """Client of ``/v1/cluster``; ``rest`` sends the requests."""

    def __init__(self, rest: RestAdmin) -> None:
        self._rest = rest

    def overview(self) -> dict[str, Any]:
        """Nodes, the placement leader, and the states of all ranges."""
        return self._rest.ask("GET", "/v1/cluster", dict[str, Any])

    def ranges(self, topic: str | None = None) -> list[dict[str, Any]]:
        """Every range, or those of one topic, and the nodes that hold it."""
        query = "" if topic is None else f"?topic={topic}"
        return self._rest.ask("GET", f"/v1/cluster/ranges{query}", list[dict[str, Any]])

    def rebalance(self) -> int:
        """Balance partitions over the nodes; returns how many are moved."""
        moved = self._rest.ask("POST", "/v1/cluster/rebalance", dict[str, int], {})
        return moved["moves"]

    def drain(self, node: int, *, on: bool) -> None:
        """Drain a node, or allow partitions on it again."""
        path = f"/v1/cluster/nodes/{node}/drain"
        self._rest.ask("PUT" if on else "DELETE", path, dict[str, object])

    def remove(self, node: int) -> None:
        """Remove a node that is permanently gone and holds nothing."""
        self._rest.ask("DELETE", f"/v1/cluster/nodes/{node}", dict[str, object])
