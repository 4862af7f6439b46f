"""The history of a dead letter: from which queues it was removed, why, and how often.

The history is a header, ``x-death``: a list with one entry per queue and reason, the latest first,
each with a count, as AMQP clients expect. Records store it as JSON, so that other clients can read
it, too. The first and the last entry are also stored as separate headers.

A dead letter does not enter a queue of its history again, unless a client rejected it since then:
it would cycle forever. RabbitMQ has the same rule. A message that a client rejects, or returns
until its attempts are used up, moves only as often as the client does so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt
from mainstem.model.limits import DEATHS_REMEMBERED_MAX
from mainstem.model.message import EXPIRES_AT, Message

X_DEATH = "x-death"
DEAD_LETTER_ID = "x-dead-letter-id"
_FIRST = "x-first-death-"
_LAST = "x-last-death-"
_BY_CLIENTS = frozenset({"rejected", "delivery_limit"})


class Death(Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One queue that dead-lettered a message for one reason. ``why`` is Mainstem's reason."""

    queue: str
    reason: str
    count: int = 1
    exchange: str = ""
    routing_keys: tuple[str, ...] = ()
    time_ms: int = 0
    why: str = ""
    attempts: int = 0
    subscriber: str = ""
    original_expiration: str | None = None


_DECODER = msgspec.json.Decoder(tuple[Death, ...])


def death_history_of(message: Message) -> tuple[Death, ...]:
    """The history of a message; empty if there is none.

    Raises:
        Corrupt: the header does not decode.
    """
    header = message.header(X_DEATH)
    if header is None:
        return ()
    try:
        return _DECODER.decode(header)
    except DECODE_ERRORS as error:
        raise Corrupt(f"{X_DEATH} does not decode: {error}") from error


def with_death(deaths: Sequence[Death], death: Death) -> tuple[Death, ...]:
    """Add an entry to the history; an equal entry is counted up and moved to the front."""
    same = [each for each in deaths if (each.queue, each.reason) == (death.queue, death.reason)]
    others = [each for each in deaths if (each.queue, each.reason) != (death.queue, death.reason)]
    if same:
        # The keys and the exchange of the first time identify the original target.
        death = replace(
            same[0], count=same[0].count + 1, time_ms=death.time_ms, attempts=death.attempts
        )
    return (death, *others)[:DEATHS_REMEMBERED_MAX]


def closes_cycle(deaths: Sequence[Death], queue: str) -> bool:
    """Whether a dead letter with this history (latest entry included) may not enter a queue."""
    for death in deaths:
        if death.reason in _BY_CLIENTS:
            return False
        if death.queue == queue:
            return True
    return False


def dead_letter(message: Message, death: Death, dead_letter_id: str) -> Message:
    """The message to append: the same body, its history, and no expiry.

    ``dead_letter_id`` has queue, lane and sequence: it identifies an append repeated after a crash.
    """
    expires_ms = message.expires_ms
    if expires_ms is not None:
        asked_ms = expires_ms - message.timestamp_ms
        death = replace(death, original_expiration=str(max(0, asked_ms)))
    deaths = with_death(death_history_of(message), death)
    letter = message.with_header(X_DEATH, msgspec.json.encode(deaths))
    letter = letter.with_header(DEAD_LETTER_ID, dead_letter_id.encode())
    letter = letter.with_header(EXPIRES_AT, None)
    for name, value in (
        ("queue", death.queue),
        ("reason", death.reason),
        ("exchange", death.exchange),
    ):
        letter = letter.with_header(_LAST + name, value.encode())
        if letter.header(_FIRST + name) is None:
            letter = letter.with_header(_FIRST + name, value.encode())
    return letter


def amqp_table(deaths: Sequence[Death]) -> list[dict[str, Any]]:
    """The history as AMQP's field table; times are seconds since 1970."""
    return [dict(_amqp_fields(death)) for death in deaths]


def _amqp_fields(death: Death) -> Mapping[str, Any]:
    fields: dict[str, Any] = {
        "count": death.count,
        "reason": death.reason,
        "queue": death.queue,
        "time": death.time_ms // 1_000,
        "exchange": death.exchange,
        "routing-keys": list(death.routing_keys),
    }
    if death.original_expiration is not None:
        fields["original-expiration"] = death.original_expiration
    return fields
