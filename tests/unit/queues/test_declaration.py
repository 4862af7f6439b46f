from typing import Any

import pytest

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.queues.arguments import arguments_of, settings_of
from mainstem.queues.declaration import (
    DifferenceSeverity,
    OnDifference,
    differences,
    merged_settings,
)
from mainstem.queues.settings import (
    NATIVE,
    DeliveryMode,
    Overflow,
    QueueSettings,
    check_settings,
)


@pytest.mark.parametrize(
    ("argument", "value", "setting", "expected"),
    [
        ("x-message-ttl", 0, "message_ttl_ms", 0),
        ("x-expires", 1, "expires_ms", 1),
        ("x-max-length", 5, "max_length", 5),
        ("x-max-length-bytes", 5, "max_length_bytes", 5),
        ("x-overflow", "reject-publish", "overflow", Overflow.REJECT_PUBLISH),
        ("x-overflow", b"drop-head", "overflow", Overflow.DROP_HEAD),
        ("x-max-priority", 10, "max_priority", 10),
        ("x-dead-letter-exchange", "", "dead_letter_exchange", ""),
        ("x-single-active-consumer", True, "single_active", True),
        ("x-delivery-limit", 2, "max_attempts", 3),
        ("x-delivery-limit", -1, "max_attempts", None),
        ("x-consumer-timeout", 1_800_000, "lease_ms", 1_800_000),
        ("x-delivery-mode", "fan-out", "mode", DeliveryMode.FANOUT),
        ("x-queue-type", "quorum", "durable", True),
        ("x-whatever", object(), "durable", True),
    ],
)
def test_arguments_become_settings(
    argument: str, value: Any, setting: str, expected: object
) -> None:
    assert getattr(settings_of({argument: value}), setting) == expected


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        ({"x-message-ttl": -1}, "x-message-ttl"),
        ({"x-message-ttl": "10"}, "x-message-ttl"),
        ({"x-message-ttl": True}, "x-message-ttl"),
        ({"x-expires": 0}, "x-expires"),
        ({"x-max-priority": 256}, "x-max-priority"),
        ({"x-overflow": "explode"}, "x-overflow"),
        ({"x-overflow": "reject-publish-dlx"}, "x-overflow"),
        ({"x-dead-letter-routing-key": "k"}, "x-dead-letter-routing-key"),
        ({"x-dead-letter-exchange": 5}, "x-dead-letter-exchange"),
        ({"x-single-active-consumer": 1}, "x-single-active-consumer"),
        ({"x-queue-type": "stream"}, "x-queue-type"),
        (
            {"x-delivery-mode": "fan-out", "x-single-active-consumer": True},
            "x-single-active-consumer",
        ),
        ({"x-delivery-mode": "fan-out", "x-max-priority": 3}, "x-max-priority"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused_by_name(
    arguments: dict[str, Any], subject: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        settings_of(arguments)

    assert (refused.value.code, refused.value.subject) == (ErrorCode.INVALID_ARGUMENT, subject)


def test_settings_become_arguments_again() -> None:
    arguments = {
        "x-message-ttl": 5,
        "x-overflow": "reject-publish",
        "x-max-length": 9,
        "x-delivery-limit": 4,
        "x-dead-letter-exchange": "dlx",
        "x-single-active-consumer": True,
    }

    assert arguments_of(settings_of(arguments)) == arguments


def test_what_native_queues_begin_with_is_sound() -> None:
    check_settings(NATIVE)

    assert (NATIVE.lease_ms, NATIVE.max_attempts, NATIVE.max_length) == (30_000, 3, 10_000)
    assert [NATIVE.retry_delay_ms(failures) for failures in (1, 2)] == [2_000, 4_000]


@pytest.mark.parametrize(
    ("current", "wanted", "severity"),
    [
        ({}, {"mode": DeliveryMode.FANOUT}, DifferenceSeverity.HARD),
        ({}, {"durable": False}, DifferenceSeverity.HARD),
        ({}, {"max_length": 5}, DifferenceSeverity.INFO),
        ({}, {"max_attempts": 5}, DifferenceSeverity.INFO),
        ({}, {"message_ttl_ms": 5}, DifferenceSeverity.SOFT),
        ({"message_ttl_ms": 9}, {"message_ttl_ms": 5}, DifferenceSeverity.SOFT),
        ({"message_ttl_ms": 5}, {"message_ttl_ms": 9}, DifferenceSeverity.INFO),
        ({"message_ttl_ms": 5}, {}, DifferenceSeverity.INFO),
        ({}, {"dead_letter_exchange": "d"}, DifferenceSeverity.INFO),
        ({"dead_letter_exchange": "d"}, {}, DifferenceSeverity.SOFT),
        ({"dead_letter_exchange": "d"}, {"dead_letter_exchange": "e"}, DifferenceSeverity.HARD),
        ({}, {"overflow": Overflow.REJECT_PUBLISH}, DifferenceSeverity.SOFT),
    ],
)
def test_differences_weigh_differently(
    current: dict[str, Any], wanted: dict[str, Any], severity: DifferenceSeverity
) -> None:
    [difference] = differences(QueueSettings(**current), QueueSettings(**wanted))

    assert difference.severity is severity


@pytest.mark.parametrize(
    ("policy", "wanted", "holds"),
    [
        (OnDifference.IGNORE, {"durable": False}, "current"),
        (OnDifference.FAIL, {}, "current"),
        (OnDifference.FAIL, {"max_length": 1}, "refused"),
        (OnDifference.OVERRIDE, {"max_length": 1}, "wanted"),
        (OnDifference.OVERRIDE, {"max_length": 1, "durable": False}, "refused"),
    ],
)
def test_a_declaration_says_what_to_do_about_differences(
    policy: OnDifference, wanted: dict[str, Any], holds: str
) -> None:
    current, asked = QueueSettings(), QueueSettings(**wanted)

    if holds == "refused":
        with pytest.raises(InvalidRequest, match="inequivalent arg"):
            merged_settings(current, asked, policy, "q")
    else:
        expected = asked if holds == "wanted" else current
        assert merged_settings(current, asked, policy, "q") == expected
