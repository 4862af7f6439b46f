"""Stores messages; responds when all of them are as durable as their topic requires.

Messages of one request keep their order in each partition. The partition is the one that the
message names, else the one that its key hashes to as in Kafka clients, else one that changes with
each request.
"""

import asyncio
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.limits import KIB
from mainstem.model.message import Message
from mainstem.model.metadata import Topic
from mainstem.model.records.murmur2 import partition_of_key
from mainstem.model.records.record import build_batch
from mainstem.model.topic_name import check_topic_name
from mainstem.protocols.rest.access import charge, need_create, refuse_debt
from mainstem.protocols.rest.convert import message_of
from mainstem.protocols.rest.errors import bad_request, problem_of, retry_headers
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.handlers.peek import PARTITION, existing
from mainstem.protocols.rest.handlers.topics import refuse_internal
from mainstem.protocols.rest.incoming import check_json, check_raw, decode, read_body
from mainstem.protocols.rest.responses import json_answer
from mainstem.protocols.rest.routing.parameters import TextParameter, TimeParameter
from mainstem.protocols.rest.schemas.topics_and_groups import (
    MessageRequest,
    MessagesRequest,
    MessagesStored,
    PartlyStored,
    PlaceAnswer,
    StoredPart,
)
from mainstem.security.quotas import MUTATIONS, PRODUCE_BYTES

BATCH_BYTES_TARGET = 512 * KIB
BATCH_MESSAGES_MAX = 1_000
# Yields to other tasks while a long request is parsed.
MESSAGES_BETWEEN_PAUSES = 256
COMMIT_TIMEOUT_S = 30.0
_BATCH_OVERHEAD_BYTES = 64
_RECORD_OVERHEAD_BYTES = 32

KEY = TextParameter("key", "The key of a message whose value is the body itself.")
TIMESTAMP = TimeParameter("timestamp", "The time of a message whose value is the body itself.")

Asked = tuple[int | None, Message]


class _Part(Struct):
    """Messages of one batch, by their index in the request, and the result of its append."""

    partition: int
    places: list[int]
    messages: list[Message]
    outcome: int | MainstemError = -1


async def produce(site: HandlerContext, request: Request) -> Response:
    """POST /v1/topics/{name}/messages."""
    name = request.path_params["name"]
    check_topic_name(name)
    asked = await _asked(site, request)
    topic = site.broker.topics.by_name(name)
    if topic is None:
        need_create(request, name)
        refuse_debt(request, MUTATIONS)
        topic = await site.broker.topics.ensure(name)
        charge(request, MUTATIONS, len(topic.streams))
    refuse_internal(topic)
    parts = list(_parts(topic, asked, keyless=next(site.turns) % len(topic.streams)))
    charge(request, PRODUCE_BYTES, sum(_size(message) for _, message in asked))
    await _store(site, topic, parts)
    failure = next((p.outcome for p in parts if isinstance(p.outcome, MainstemError)), None)
    if failure is not None:
        return _refused_answer(topic, failure, parts)
    return _stored_answer(topic, parts, len(asked))


async def asked_messages(site: HandlerContext, request: Request) -> list[Message]:
    """The messages of a JSON body, for destinations without partitions."""
    check_json(request)
    wanted = _described(await read_body(site, request))
    now_ms = site.clock.wall_ms()
    return [
        message_of(described, now_ms=now_ms, place=place)
        for place, described in enumerate(wanted.messages)
    ]


async def _asked(site: HandlerContext, request: Request) -> list[Asked]:
    """The messages of the body, each with the partition that it names, if any."""
    now_ms = site.clock.wall_ms()
    default = PARTITION.of(request)
    if check_raw(request):
        key, timestamp = KEY.of(request), TIMESTAMP.of(request)
        value = await read_body(site, request)
        key_bytes = None if key is None else key.encode()
        time_ms = now_ms if timestamp is None else timestamp
        return [(default, Message(key_bytes, value, (), time_ms))]
    check_json(request)
    for parameter in (KEY, TIMESTAMP):
        if parameter.text(request) is not None:
            raise bad_request(
                "this parameter requires a body of type text/plain or application/octet-stream",
                subject=parameter.name,
                remedy="set it in the message",
            )
    wanted = _described(await read_body(site, request))
    if wanted.partition is not None:
        default = wanted.partition
    asked: list[Asked] = []
    for place, described in enumerate(wanted.messages):
        partition = default if described.partition is None else described.partition
        asked.append((partition, message_of(described, now_ms=now_ms, place=place)))
        if place % MESSAGES_BETWEEN_PAUSES == 0:
            await asyncio.sleep(0)
    return asked


def _described(body: bytes) -> MessagesRequest:
    """One message, a list of them, or an object that holds the list."""
    if body.lstrip()[:1] == b"[":
        messages = decode(body, list[MessageRequest])
        if not messages:
            raise bad_request("the list of messages is empty")
        return MessagesRequest(messages=messages)
    if "messages" in decode(body, dict[str, msgspec.Raw]):
        return decode(body, MessagesRequest)
    return MessagesRequest(messages=[decode(body, MessageRequest)])


def _parts(topic: Topic, asked: Sequence[Asked], *, keyless: int) -> Iterator[_Part]:
    """The batches to write: messages by partition, in order, each of limited size."""
    count = len(topic.streams)
    limit = int(topic.configs.get("max.message.bytes", BATCH_BYTES_TARGET))
    limit = min(limit, BATCH_BYTES_TARGET) - _BATCH_OVERHEAD_BYTES
    open_parts: dict[int, tuple[_Part, int]] = {}
    for place, (wanted, message) in enumerate(asked):
        if wanted is not None:
            partition = existing(topic, wanted)
        elif message.key is not None:
            partition = partition_of_key(message.key, count)
        else:
            partition = keyless
        added = _size(message)
        part, size = open_parts.get(partition, (None, 0))
        if part is None or size + added > limit or len(part.places) >= BATCH_MESSAGES_MAX:
            if part is not None:
                yield part
            part, size = _Part(partition, [], []), 0
        part.places.append(place)
        part.messages.append(message)
        open_parts[partition] = part, size + added
    for part, _ in open_parts.values():
        yield part


def _size(message: Message) -> int:
    size = _RECORD_OVERHEAD_BYTES + len(message.key or b"") + len(message.value or b"")
    return size + sum(len(name.encode()) + len(value or b"") + 8 for name, value in message.headers)


async def _store(site: HandlerContext, topic: Topic, parts: Sequence[_Part]) -> None:
    """Append everything at once, in order, and wait until all of it is committed."""
    batches = []
    for part in parts:
        batches.append(build_batch([message.to_record() for message in part.messages]))
        await asyncio.sleep(0)
    streams = site.broker.streams
    try:
        async with asyncio.timeout(COMMIT_TIMEOUT_S):
            outcomes = await asyncio.gather(
                *(
                    streams.append(topic.name, part.partition, batch)
                    for part, batch in zip(parts, batches, strict=True)
                ),
                return_exceptions=True,
            )
    except TimeoutError:
        late = Unavailable(
            ErrorCode.TIMED_OUT,
            f"not known to be stored after {COMMIT_TIMEOUT_S:.0f} s; it may be stored later",
            subject=topic.name,
        )
        outcomes = [late] * len(parts)
    metrics = site.telemetry.metrics
    for part, outcome in zip(parts, outcomes, strict=True):
        if isinstance(outcome, MainstemError):
            metrics.batches_refused += 1
        elif isinstance(outcome, BaseException):
            raise outcome
        part.outcome = outcome


def _stored_answer(topic: Topic, parts: Sequence[_Part], count: int) -> Response:
    offsets = [PlaceAnswer(-1, -1)] * count
    for part in parts:
        assert isinstance(part.outcome, int)
        for offset, place in enumerate(part.places, part.outcome):
            offsets[place] = PlaceAnswer(part.partition, offset)
    return json_answer(
        MessagesStored(
            topic=topic.name,
            partition=offsets[0].partition,
            base_offset=offsets[0].offset,
            record_count=count,
            offsets=offsets,
        )
    )


def _refused_answer(topic: Topic, failure: MainstemError, parts: Sequence[_Part]) -> Response:
    """The error response, with what was stored."""
    status, problem = problem_of(failure)
    outcomes = []
    for part in parts:
        outcome, count = part.outcome, len(part.messages)
        if isinstance(outcome, MainstemError):
            code, cause = outcome.code.name, outcome.cause
            outcomes.append(StoredPart(part.partition, count, None, code, cause))
        else:
            outcomes.append(StoredPart(part.partition, count, outcome))
    body = PartlyStored(
        code=problem.code,
        cause=problem.cause,
        subject=problem.subject or topic.name,
        remedy=problem.remedy,
        parts=outcomes,
    )
    return json_answer(body, status, retry_headers(status))
