"""A cluster that can be troubled in every way: its network is cut, its disks lose their power."""

from tests.chaos.network import NetworkCluster
from tests.chaos.powered import PoweredCluster


class HarshCluster(PoweredCluster, NetworkCluster):
    """Each node in a network namespace and on a file system of its own. Root only."""
