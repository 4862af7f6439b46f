"""Refusals of the house in AMQP's numbers."""

import pytest

from mainstem.model.errors import RETRIABLE, ErrorCode, InvalidRequest
from mainstem.protocols.amqp.errors import (
    INTERNAL_ERROR,
    NAMES,
    RESOURCE_LOCKED,
    ChannelRefusal,
    ConnectionRefusal,
    translated,
)


@pytest.mark.parametrize("code", ErrorCode)
def test_every_refusal_has_a_number_and_a_text_that_fits(code: ErrorCode) -> None:
    refusal = translated(InvalidRequest(code, "ä" * 300, subject="s"), "queue", "q", "/")

    assert refusal.code in NAMES
    assert refusal.reply_text.startswith(NAMES[refusal.code])
    assert len(refusal.reply_text.encode()) <= 255
    if code in RETRIABLE:
        assert refusal.code != INTERNAL_ERROR


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (ErrorCode.UNKNOWN_QUEUE, ChannelRefusal, "NOT_FOUND - no queue 'q' in vhost '/'"),
        (ErrorCode.UNKNOWN_EXCHANGE, ChannelRefusal, "NOT_FOUND - no exchange 's' in vhost '/'"),
        (ErrorCode.NOT_COORDINATOR, ConnectionRefusal, "CONNECTION_FORCED - queue 'q' in vhost"),
        (ErrorCode.INTERNAL, ConnectionRefusal, "INTERNAL_ERROR - queue 'q' in vhost '/'"),
    ],
)
def test_a_refusal_says_what_it_is_about(code: ErrorCode, kind: type, text: str) -> None:
    refusal = translated(InvalidRequest(code, "why", subject="s"), "queue", "q", "/")

    assert isinstance(refusal, kind)
    assert refusal.reply_text.startswith(text)


def test_the_argument_that_differs_is_named_with_its_queue() -> None:
    cause = "inequivalent arg 'durable': received 'false' but current is 'true'"

    refusal = translated(
        InvalidRequest(ErrorCode.DECLARATION_DIFFERS, cause, subject="q"), "queue", "q", "/"
    )

    assert refusal.reply_text == (
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': "
        "received 'false' but current is 'true'"
    )
    locked = translated(InvalidRequest(ErrorCode.RESOURCE_LOCKED, subject="q"), "queue", "q", "/")
    assert locked.code == RESOURCE_LOCKED
