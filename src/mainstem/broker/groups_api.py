"""The part of the counter that concerns consumer groups and committed offsets."""

from typing import Protocol


class Groups(Protocol):
    """Consumer groups. The verbs are added by the room that serves them."""
