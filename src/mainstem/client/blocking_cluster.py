"""The connections of blocking clients: addresses and settings.

    with BlockingCluster("broker.example:9093", settings) as cluster:
        with BlockingProducer(cluster) as producer: ...

Only needed for logins and TLS, or to share connections; otherwise an address is enough.
"""

from collections.abc import Sequence

from mainstem.client.cluster import Cluster
from mainstem.client.concurrency.sync_wrapper import SyncWrapper
from mainstem.client.connection import ConnectionSettings


class BlockingCluster(SyncWrapper[Cluster]):
    """Holds the connections of blocking clients.

    A context manager; arguments as for ``Cluster``.
    """

    def __init__(
        self, bootstrap: str | Sequence[str], settings: ConnectionSettings | None = None
    ) -> None:
        super().__init__(lambda: Cluster(bootstrap, settings))


def inner(where: BlockingCluster | str | Sequence[str]) -> Cluster | str | Sequence[str]:
    """The asyncio cluster to pass to asyncio clients."""
    return where.parts[1] if isinstance(where, BlockingCluster) else where
