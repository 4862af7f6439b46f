"""Reads messages of a partition without a group and without committing offsets."""

from starlette.requests import Request
from starlette.responses import Response

from mainstem.broker.api.broker import StableStreamReader
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import PARTITIONS_PER_TOPIC_MAX
from mainstem.model.metadata import Topic
from mainstem.protocols.rest.access import charge
from mainstem.protocols.rest.convert import shown
from mainstem.protocols.rest.errors import bad_request
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.handlers.topics import found
from mainstem.protocols.rest.responses import PacedAnswer
from mainstem.protocols.rest.routing.parameters import (
    ChoiceParameter,
    IntegerParameter,
    OffsetParameter,
    TimeParameter,
)
from mainstem.protocols.rest.window import MESSAGES_MAX
from mainstem.security.quotas import FETCH_BYTES

LIMIT_DEFAULT = 100

PARTITION = IntegerParameter(
    "partition",
    "The partition to read (0 by default), or to write if a message names none.",
    at_least=0,
    at_most=PARTITIONS_PER_TOPIC_MAX - 1,
)
OFFSET = OffsetParameter(
    "offset",
    "Where to start: an offset, earliest (the default), latest, or -n for the last n offsets.",
)
FROM_TIMESTAMP = TimeParameter(
    "from_timestamp",
    "Start at the first message that is not older: milliseconds since 1970 or ISO 8601.",
)
LIMIT = IntegerParameter(
    "limit",
    f"How many messages at most; {LIMIT_DEFAULT} by default. Large ones may end a response sooner.",
    at_least=1,
    at_most=MESSAGES_MAX,
)
ENCODING = ChoiceParameter(
    "encoding",
    "How bytes are shown: auto is text if they are UTF-8, otherwise base64.",
    ("auto", "text", "base64"),
)


async def peek(site: HandlerContext, request: Request) -> Response:
    """GET /v1/topics/{name}/messages."""
    topic = found(site, request.path_params["name"])
    partition = PARTITION.of(request) or 0
    limit = LIMIT.of(request) or LIMIT_DEFAULT
    encoding = ENCODING.of(request)
    offset, timestamp = OFFSET.of(request), FROM_TIMESTAMP.of(request)
    until = offset + limit if isinstance(offset, int) and offset >= 0 else None
    reader = await site.broker.streams.open_reader(topic.name, existing(topic, partition), until)
    start = await _start(reader, offset, timestamp, f"{topic.name}-{partition}")
    window = await site.peeker.window(reader, start, limit=limit)
    site.telemetry.metrics.messages_out += len(window.records)
    headers = {
        "mainstem-next-offset": str(window.next_offset),
        "mainstem-start-offset": str(reader.start_offset),
        "mainstem-end-offset": str(reader.last_stable),
    }
    if window.damage is not None:
        headers["mainstem-damaged-offset"] = str(window.next_offset)
    answer = [shown(record, partition, encoding) for record in window.records]
    paced = PacedAnswer(site.held, answer, headers)
    charge(request, FETCH_BYTES, len(paced.body))
    return paced


def existing(topic: Topic, partition: int) -> int:
    """Return the partition, or raise if the topic does not have it."""
    if partition >= len(topic.streams):
        raise InvalidRequest(
            ErrorCode.UNKNOWN_TOPIC,
            f"no partition {partition}; the topic has {len(topic.streams)}",
            subject=topic.name,
            remedy=f"use a number below {len(topic.streams)}",
        )
    return partition


async def _start(
    reader: StableStreamReader, offset: int | str | None, timestamp: int | None, subject: str
) -> int:
    """The offset at which a window starts."""
    if timestamp is not None:
        if offset is not None:
            raise bad_request("offset and time exclude each other", remedy="leave one of them out")
        at = await reader.offset_at(timestamp)
        return reader.last_stable if at is None else at
    if offset is None or offset == "earliest":
        return reader.start_offset
    if isinstance(offset, str):
        return reader.last_stable
    if offset < 0:
        return max(reader.start_offset, reader.last_stable + offset)
    if not reader.start_offset <= offset <= reader.last_stable:
        raise InvalidRequest(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is not held",
            subject=subject,
            remedy=f"use an offset from {reader.start_offset} to {reader.last_stable}",
        )
    return offset
