"""Sends the records of a micro-batch to an HTTP URL, each with an idempotency key.

Records with the same key are sent one after the other; records with different keys concurrently.
After an answer of 429 or 5xx, or none, the request is retried; other 4xx are final and become dead
letters. The key is ``<pipeline>-<query>-<batch>-<row>``: the same when a batch is repeated after a
crash, so a receiver that stores keys processes every record once.
"""

import asyncio
import random
import zlib
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx
from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable

WAITING_MAX: Final = 32  # records that wait for each sender
REFUSED_MAX: Final = 10_000  # dead letters of one batch, held in memory
BODY_SHOWN_MAX: Final = 200
PASSING: Final = frozenset({408, 425, 429})


class SenderSettings(Struct, frozen=True, kw_only=True):
    """Receiver, concurrency and retries of the sender."""

    url: str
    method: str
    headers: dict[str, str]
    content_type: str
    forward_headers: bool
    concurrency: int
    timeout_ms: int
    retries: int
    initial_backoff_ms: int
    max_backoff_ms: int


class Outgoing(Struct, frozen=True):
    """One record to send; ``row`` is the whole wire row."""

    idempotency_key: str
    row: dict[str, Any]


class RefusedRecord(Struct, frozen=True):
    """A record that the receiver permanently refuses."""

    row: dict[str, Any]
    error: str


async def send_all(
    records: Iterator[Outgoing], settings: SenderSettings, transport: Any = None
) -> list[RefusedRecord]:
    """Deliver records; returns those that were permanently refused.

    Raises:
        Unavailable: the receiver did not accept a record within all retries.
    """
    limits = httpx.Limits(max_connections=settings.concurrency)
    timeout = httpx.Timeout(settings.timeout_ms / 1000)
    async with httpx.AsyncClient(limits=limits, timeout=timeout, transport=transport) as client:
        senders = [_SequentialSender(client, settings) for _ in range(settings.concurrency)]
        try:
            async with asyncio.TaskGroup() as group:
                for sender in senders:
                    group.create_task(sender.run())
                number = 0
                async for record in _beside(records):
                    key = record.row.get("key")
                    number = number + 1 if key is None else zlib.crc32(key)
                    await senders[number % len(senders)].waiting.put(record)
                for sender in senders:
                    await sender.waiting.put(None)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
    return [each for sender in senders for each in sender.refused]


async def _beside(records: Iterator[Outgoing]) -> AsyncIterator[Outgoing]:
    """The records, fetched in a thread so that requests in progress are not delayed."""
    while (record := await asyncio.to_thread(next, records, None)) is not None:
        yield record


class _SequentialSender:
    """Sends its records one after the other."""

    def __init__(self, client: httpx.AsyncClient, settings: SenderSettings) -> None:
        self.waiting: asyncio.Queue[Outgoing | None] = asyncio.Queue(WAITING_MAX)
        self.refused: list[RefusedRecord] = []
        self._client = client
        self._settings = settings

    async def run(self) -> None:
        while (record := await self.waiting.get()) is not None:
            error = await self._deliver(record)
            if error is None:
                continue
            self.refused.append(RefusedRecord(record.row, error))
            if len(self.refused) > REFUSED_MAX:
                raise InvalidRequest(
                    ErrorCode.INVALID_CONFIG,
                    f"more than {REFUSED_MAX} records of a batch were refused: {error}",
                    subject=self._settings.url,
                    remedy="check that url is correct",
                )

    async def _deliver(self, record: Outgoing) -> str | None:
        """None when it was delivered, the reason when it is permanently refused."""
        reason, pause = "", 0.0
        for attempt in range(self._settings.retries + 1):
            if attempt:
                await asyncio.sleep(pause)
            pause = self._pause(attempt)
            try:
                answer = await self._client.request(
                    self._settings.method,
                    self._settings.url,
                    content=record.row.get("value") or b"",
                    headers=_headers(record, self._settings),
                )
            except httpx.TransportError as error:
                reason = f"{type(error).__name__} {error}".strip()
                continue
            if answer.is_success:
                return None
            reason = _response_text(answer)
            if answer.status_code in {401, 403}:
                raise InvalidRequest(
                    ErrorCode.NOT_AUTHORIZED,
                    reason,
                    subject=self._settings.url,
                    remedy="check token and headers",
                )
            if answer.status_code < 500 and answer.status_code not in PASSING:
                return reason
            pause = max(pause, min(_retry_after_s(answer), self._settings.max_backoff_ms / 1000))
        raise Unavailable(
            ErrorCode.TIMED_OUT,
            f"not delivered in {self._settings.retries + 1} attempts: {reason}",
            subject=self._settings.url,
            remedy="the batch is repeated when the receiver answers again",
        )

    def _pause(self, attempt: int) -> float:
        settings = self._settings
        longest = min(settings.max_backoff_ms, settings.initial_backoff_ms << attempt)
        return random.uniform(0.5, 1.0) * longest / 1000  # noqa: S311


def _headers(record: Outgoing, settings: SenderSettings) -> list[tuple[bytes, bytes]]:
    row = record.row
    given = {
        "Content-Type": settings.content_type,
        "Idempotency-Key": record.idempotency_key,
        **settings.headers,
    }
    headers = [(name.encode(), value.encode()) for name, value in given.items()]
    if row.get("topic"):
        headers.append((b"X-Mainstem-Topic", row["topic"].encode()))
    if row.get("value") is None:
        headers.append((b"X-Mainstem-Tombstone", b"true"))
    if settings.forward_headers:
        headers += [
            (f"X-Mainstem-Header-{each['key']}".encode(), each["value"] or b"")
            for each in row.get("headers") or []
            if _is_header(each["key"], each["value"] or b"")
        ]
    return headers


def _is_header(name: str, value: bytes) -> bool:
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    return plain.isascii() and plain.isalnum() and all(32 <= byte < 127 for byte in value)


def _response_text(answer: httpx.Response) -> str:
    text = " ".join(answer.text[:BODY_SHOWN_MAX].split())
    return f"HTTP {answer.status_code}{': ' + text if text else ''}"


def _retry_after_s(answer: httpx.Response) -> float:
    given = answer.headers.get("Retry-After", "")
    if given.isdigit():
        return float(given)
    try:
        moment = parsedate_to_datetime(given)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
