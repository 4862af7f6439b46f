"""What all listeners of a node share, so that none of them can use it up alone."""

from msgspec import Struct

from mainstem.protocols.admission import Admission
from mainstem.protocols.frame_memory import FrameMemory


class Resources(Struct, frozen=True):
    """Descriptors for clients, and memory for what they have sent."""

    admission: Admission
    memory: FrameMemory
