"""The topic that stores the messages of an exchange, and its name.

    namespace  exchange      topic
    /          orders        orders                      legal names stay as they are
    /          größe         exchange._2f.gr_c3_b6_c3_9fe
    team-a     orders        exchange.team-a.orders
    any        (default)     __queue_data, __queue_data.team-a: published to a queue by its name

Letters, digits and ``-`` are kept, every other byte becomes ``_`` and two hexadecimal digits. A
name that would be too long ends in a digest instead; its exchange is a fact of the namespace.
"""

import hashlib
import re

from mainstem.model.limits import TOPIC_NAME_LENGTH_MAX
from mainstem.model.topic_name import INTERNAL_TOPICS, QUEUE_DATA_TOPIC

DEFAULT_NAMESPACE = "/"

_PREFIX = "exchange."
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_PLAIN = re.compile(r"[a-zA-Z0-9-]")


def topic_for(namespace: str, exchange: str) -> str:
    """The topic of an exchange: the same name if that is legal and unique."""
    if (
        namespace == DEFAULT_NAMESPACE
        and len(exchange) <= TOPIC_NAME_LENGTH_MAX
        and _LEGAL.fullmatch(exchange)
        and exchange not in {".", ".."}
        and exchange not in INTERNAL_TOPICS
        and not exchange.startswith((_PREFIX, "__"))
    ):
        return exchange
    return encoded_topic(namespace, exchange)


def encoded_topic(namespace: str, exchange: str) -> str:
    """The encoded name, which differs from all plain names."""
    name = f"{_PREFIX}{_encode(namespace)}.{_encode(exchange)}"
    if len(name) <= TOPIC_NAME_LENGTH_MAX:
        return name
    digest = hashlib.sha256(f"{namespace}\0{exchange}".encode()).hexdigest()
    return f"{name[: TOPIC_NAME_LENGTH_MAX - len(digest) - 1]}-{digest}"


def data_topic(namespace: str) -> str:
    """The topic of messages published to queues by name."""
    if namespace == DEFAULT_NAMESPACE:
        return QUEUE_DATA_TOPIC
    name = f"{QUEUE_DATA_TOPIC}.{_encode(namespace)}"
    if len(name) <= TOPIC_NAME_LENGTH_MAX:
        return name
    return f"{QUEUE_DATA_TOPIC}.{hashlib.sha256(namespace.encode()).hexdigest()}"


def _encode(text: str) -> str:
    return "".join(
        chr(byte) if _PLAIN.fullmatch(chr(byte)) else f"_{byte:02x}" for byte in text.encode()
    )
