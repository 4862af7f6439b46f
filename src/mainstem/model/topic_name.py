"""Which topic names are legal, and which two collide.

The rules are Kafka's: 1 to 249 of ``a-z A-Z 0-9 . _ -``, not ``.`` or ``..``. Names that differ
only in ``.`` and ``_`` collide, because many tools replace one by the other in metric names.
"""

import re

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import TOPIC_NAME_LENGTH_MAX

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

GROUP_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
QUEUES_TOPIC = "__queues"
QUEUE_DATA_TOPIC = "__queue_data"
MQTT_SESSIONS_TOPIC = "__mqtt_sessions"
MQTT_RETAINED_TOPIC = "__mqtt_retained"
INTERNAL_TOPICS = frozenset(
    {
        GROUP_OFFSETS_TOPIC,
        TRANSACTION_STATE_TOPIC,
        QUEUES_TOPIC,
        QUEUE_DATA_TOPIC,
        MQTT_SESSIONS_TOPIC,
        MQTT_RETAINED_TOPIC,
        "__share_group_state",
    }
)
"""Names that only the node itself creates, writes and deletes."""
MESSAGE_TOPICS = frozenset({QUEUE_DATA_TOPIC, MQTT_RETAINED_TOPIC})
"""Those among them that hold messages of clients."""
KAFKA_INTERNAL_TOPICS = frozenset({GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})
"""Those whose settings operators may change, as in Kafka."""


def is_reserved_name(name: str) -> bool:
    """Whether only the node itself may have a topic of this name."""
    return name in INTERNAL_TOPICS or name.startswith(QUEUE_DATA_TOPIC + ".")


def check_topic_name(name: str) -> None:
    """Raise ``InvalidRequest`` with INVALID_TOPIC_NAME unless ``name`` is legal."""
    if not name:
        cause = "a topic name may not be empty"
    elif name in {".", ".."}:
        cause = f"{name!r} is not allowed as a topic name"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        cause = f"a topic name has at most {TOPIC_NAME_LENGTH_MAX} characters, this one {len(name)}"
    elif not _LEGAL.fullmatch(name):
        cause = f"{name!r} holds characters other than ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise InvalidRequest(ErrorCode.INVALID_TOPIC_NAME, cause, subject=name[:TOPIC_NAME_LENGTH_MAX])


def holds_metadata(name: str) -> bool:
    """Whether a topic holds the state of groups, transactions, queues or sessions, no messages.

    Its records may use the space that is kept for metadata: without them no message could be
    acknowledged, and so none deleted.
    """
    return name in INTERNAL_TOPICS and name not in MESSAGE_TOPICS


def collision_key(name: str) -> str:
    """A key that is equal for names that collide."""
    return name.replace(".", "_")
