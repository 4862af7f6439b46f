"""Resources that all listeners of a node share, so that no listener can use them up alone."""

from collections.abc import Callable

from msgspec import Struct

from mainstem.protocols.connection_admission import ConnectionAdmission
from mainstem.protocols.frame_memory import FrameMemory


class Resources(Struct, frozen=True):
    """Descriptors for clients, memory for what they have sent, and disk space for it."""

    admission: ConnectionAdmission
    memory: FrameMemory
    has_space: Callable[[], bool] = lambda: True
