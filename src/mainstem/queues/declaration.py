"""Compares a declaration with the existing queue: differences, their severity, and the result.

AMQP refuses every difference and reports the first one. Native clients choose: ignore, fail, or
override what can be changed in place. *Hard* differences cannot be changed: messages in the queue
would lose guarantees under which they were published.
"""

from enum import Enum, IntEnum
from typing import Any

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.queues.arguments import ARGUMENT_NAMES
from mainstem.queues.settings import QueueSettings


class DifferenceSeverity(IntEnum):
    """How much a difference affects existing users of the queue."""

    INFO = 0
    SOFT = 1
    HARD = 2


class OnDifference(Enum):
    """How a declaration handles differences."""

    IGNORE = "ignore"
    FAIL = "fail"
    OVERRIDE = "override"


class Difference(Struct, frozen=True):
    """One setting whose declared value differs from the current one."""

    setting: str
    current: Any
    wanted: Any
    severity: DifferenceSeverity

    @property
    def argument(self) -> str:
        """The name of the setting in AMQP."""
        return ARGUMENT_NAMES.get(self.setting, self.setting)

    def __str__(self) -> str:
        wanted, current = (_value_text(value) for value in (self.wanted, self.current))
        return f"inequivalent arg '{self.argument}': received {wanted} but current is {current}"


_HARD = frozenset(
    {
        "mode",
        "durable",
        "exclusive",
        "max_priority",
        "single_active",
        "auto_delete",
        "queue_type",
    }
)
_INFO = frozenset({"max_length", "max_length_bytes", "max_attempts", "max_acquired"})
_TIMES = frozenset({"message_ttl_ms", "expires_ms", "lease_ms"})


def differences(current: QueueSettings, wanted: QueueSettings) -> tuple[Difference, ...]:
    """The differences, in the order of the settings."""
    return tuple(
        Difference(name, ours, theirs, _severity(name, current, wanted))
        for name in QueueSettings.__struct_fields__
        if (ours := getattr(current, name)) != (theirs := getattr(wanted, name))
        and not (name == "queue_type" and None in (ours, theirs))
    )


def merged_settings(
    current: QueueSettings, wanted: QueueSettings, policy: OnDifference, subject: str
) -> QueueSettings:
    """The settings after a repeated declaration.

    Raises:
        InvalidRequest: the policy does not allow a difference; the cause has the argument.
    """
    found = differences(current, wanted)
    if not found or policy is OnDifference.IGNORE:
        return current
    if policy is OnDifference.FAIL and current.exclusive is not wanted.exclusive:
        # Checked first and with its own error code, as AMQP clients expect.
        raise InvalidRequest(
            ErrorCode.RESOURCE_LOCKED,
            "the queue is exclusive" if current.exclusive else "the queue is not exclusive",
            subject=subject,
            remedy="declare it with its current settings, or delete it first",
        )
    worst = found[0]
    if policy is OnDifference.OVERRIDE:
        worst = max(found, key=lambda difference: difference.severity)
        if worst.severity < DifferenceSeverity.HARD:
            return wanted
    raise InvalidRequest(
        ErrorCode.DECLARATION_DIFFERS,
        str(worst),
        subject=subject,
        remedy="declare it with its current settings, or delete it first",
    )


def _severity(name: str, current: QueueSettings, wanted: QueueSettings) -> DifferenceSeverity:
    if name in _HARD:
        return DifferenceSeverity.HARD
    ours, theirs = getattr(current, name), getattr(wanted, name)
    if name in _INFO:
        return DifferenceSeverity.INFO
    if name in _TIMES:
        # Users may rely on the longer time.
        is_shorter = theirs is not None and (ours is None or theirs < ours)
        return DifferenceSeverity.SOFT if is_shorter else DifferenceSeverity.INFO
    if name == "dead_letter_exchange" and None not in (ours, theirs):
        return DifferenceSeverity.HARD
    return (
        DifferenceSeverity.INFO
        if name == "dead_letter_exchange" and ours is None
        else DifferenceSeverity.SOFT
    )


def _value_text(value: Any) -> str:
    if value is None:
        return "none"
    return f"the value '{value}'" if not isinstance(value, bool) else f"'{str(value).lower()}'"
