"""Topics that a consumer subscribes to: the first fields of the metadata that consumers send.

    version (2)   topics: count (4), each length (2) and name   … later versions only add to the end

The coordinator reads them for one reason: committed offsets of topics that a group reads do not
expire and cannot be deleted. If the metadata cannot be decoded, the topics are unknown.
"""

import struct
from struct import Struct as Layout

CONSUMER_PROTOCOL = "consumer"

_COUNT = Layout(">xxi")
_LENGTH = Layout(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics a member subscribes to, or None if the metadata cannot be decoded."""
    try:
        count = _COUNT.unpack_from(metadata)[0]
        at = _COUNT.size
        topics = []
        for _ in range(count):
            length = _LENGTH.unpack_from(metadata, at)[0]
            at += _LENGTH.size
            if length < 0 or at + length > len(metadata):
                return None
            topics.append(metadata[at : at + length].decode())
            at += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
