"""Virtual time: a mark for async tests whose sleeps and timeouts take none.

    pytestmark = virtual_time

Sockets and threads do not fit; jobs for threads run in the loop, after a short virtual delay.
"""

import pytest

from mainstem.testing.simulation.raft.group import SimulatedLoop

virtual_time = pytest.mark.loop(factory=SimulatedLoop)
