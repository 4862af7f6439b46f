"""Topic names and filters: what is legal, and how shared ones are written.

sport/tennis/player1      a name: at least one character, no wildcards
sport/+/player1, sport/#  filters: ``+`` is one whole level, ``#`` the rest, at the end only
$share/workers/sport/#    the same filter, each message to one of the group ``workers``
"""

from typing import Final, NamedTuple

from mainstem.wire.mqtt.primitives import TEXT_BYTES_MAX

SHARE: Final = "$share/"
LEVELS_MAX: Final = 256  # matching time grows with the levels
REMEMBERED_MAX: Final = 4_096


class SharedFilter(NamedTuple):
    """A group and the filter that its members share."""

    group: str
    filter: str


def is_topic_name(topic: str) -> bool:
    """Whether messages can be published under that name."""
    return (
        bool(topic)
        and "+" not in topic
        and "#" not in topic
        and "\0" not in topic
        and len(topic.encode()) <= TEXT_BYTES_MAX
        and topic.count("/") < LEVELS_MAX
    )


_known: dict[bytes, str] = {}


def topic_name(data: bytes) -> str | None:
    """Decodes a topic name; None if it is invalid.

    Called for every message, mostly with the same few names: the results are cached.
    """
    found = _known.get(data)
    if found is None:
        if len(data) > TEXT_BYTES_MAX:
            return None
        try:
            found = data.decode()
        except UnicodeDecodeError:
            return None
        if not is_topic_name(found):
            return None
        if len(_known) >= REMEMBERED_MAX:
            _known.clear()
        _known[data] = found
    return found


def is_filter(text: str) -> bool:
    """Whether a topic filter is valid, without the prefix of shared filters."""
    if not text or "\0" in text or text.count("/") >= LEVELS_MAX:
        return False
    if len(text.encode()) > TEXT_BYTES_MAX:
        return False
    levels = text.split("/")
    last = len(levels) - 1
    for place, level in enumerate(levels):
        if "#" in level and (level != "#" or place != last):
            return False
        if "+" in level and level != "+":
            return False
    return True


def shared_filter(text: str) -> SharedFilter | None:
    """The parts of a shared filter; None if it is an ordinary one, or invalid."""
    if not text.startswith(SHARE):
        return None
    group, slash, inner = text[len(SHARE) :].partition("/")
    if not slash or not group or "+" in group or "#" in group or not is_filter(inner):
        return None
    return SharedFilter(group, inner)


def is_subscribable(text: str) -> bool:
    """Whether a topic filter is valid, shared or not."""
    if text.startswith(SHARE):
        return shared_filter(text) is not None
    return is_filter(text)


def fits(filter_text: str, topic: str) -> bool:
    """Whether a filter matches a topic; one by one, for few filters."""
    if topic.startswith("$") and filter_text[0] in "+#":
        return False
    wanted, levels = filter_text.split("/"), topic.split("/")
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(levels) or (level not in ("+", levels[place])):
            return False
    return len(wanted) == len(levels)
