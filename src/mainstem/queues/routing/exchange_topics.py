"""Which topic keeps the messages of an exchange, and how its name is made.

    namespace  exchange      topic
    /          orders        orders                      legal names stay as they are
    /          größe         exchange._2f.gr_c3_b6_c3_9fe
    team-a     orders        exchange.team-a.orders
    any        (default)     __queue_data, __queue_data.team-a: published to a queue by its name

Letters, digits and ``-`` stand for themselves, every other byte is ``_`` and two hexadecimal
digits, so names can be read back. One that would be too long ends in a digest instead; which
exchange it belongs to is a fact of its namespace.
"""

import hashlib
import re

from mainstem.model.limits import TOPIC_NAME_LENGTH_MAX
from mainstem.model.topic_name import INTERNAL_TOPICS, QUEUE_DATA_TOPIC

DEFAULT_NAMESPACE = "/"

_PREFIX = "exchange."
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_PLAIN = re.compile(r"[a-zA-Z0-9-]")
_ENCODED = re.compile(r"_([0-9a-f]{2})")


def topic_for(namespace: str, exchange: str) -> str:
    """The topic of an exchange: its own name where that is legal and nobody else's."""
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
    """The name that no other exchange has, whatever the plain ones look like."""
    name = f"{_PREFIX}{_encode(namespace)}.{_encode(exchange)}"
    if len(name) <= TOPIC_NAME_LENGTH_MAX:
        return name
    digest = hashlib.sha256(f"{namespace}\0{exchange}".encode()).hexdigest()
    return f"{name[: TOPIC_NAME_LENGTH_MAX - len(digest) - 1]}-{digest}"


def exchange_of_topic(topic: str) -> tuple[str, str]:
    """Namespace and exchange that a topic name says; those of a digest are not to be read."""
    parts = topic.split(".")
    if topic.startswith(_PREFIX) and len(parts) == 3:
        return _decode(parts[1]), _decode(parts[2])
    return DEFAULT_NAMESPACE, topic


def data_topic(namespace: str) -> str:
    """The topic of what is published to queues by their names."""
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


def _decode(text: str) -> str:
    plain = _ENCODED.sub(lambda found: chr(int(found[1], 16)), text)
    return plain.encode("latin-1", errors="replace").decode(errors="replace")
