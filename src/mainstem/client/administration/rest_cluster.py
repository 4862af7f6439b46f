"""The cluster as a whole, looked at and moved over HTTP."""

from typing import Any

from mainstem.client.rest_admin import RestAdmin


class RestCluster:
    """What ``/v1/cluster`` tells and does; ``rest`` reaches a node."""

    def __init__(self, rest: RestAdmin) -> None:
        self._rest = rest

    def overview(self) -> dict[str, Any]:
        """Nodes, who leads, and the states of all ranges."""
        return self._rest.ask("GET", "/v1/cluster", dict[str, Any])

    def ranges(self, topic: str | None = None) -> list[dict[str, Any]]:
        """Every range, or those of one topic, and who holds it."""
        query = "" if topic is None else f"?topic={topic}"
        return self._rest.ask("GET", f"/v1/cluster/ranges{query}", list[dict[str, Any]])

    def rebalance(self) -> int:
        """Let nodes share the work evenly; how many partitions are moved."""
        moved = self._rest.ask("POST", "/v1/cluster/rebalance", dict[str, int], {})
        return moved["moves"]

    def drain(self, node: int, *, on: bool) -> None:
        """Let a node hold nothing, or let it hold partitions again."""
        path = f"/v1/cluster/nodes/{node}/drain"
        self._rest.ask("PUT" if on else "DELETE", path, dict[str, object])

    def remove(self, node: int) -> None:
        """Forget a node that is gone for good and holds nothing."""
        self._rest.ask("DELETE", f"/v1/cluster/nodes/{node}", dict[str, object])
