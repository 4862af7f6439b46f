"""Applies a list of changes to a set of settings. Pure."""

from collections.abc import Callable, Mapping, Sequence

from mainstem.broker.api.configs import ConfigChange
from mainstem.model.config.key import LIST, ConfigKey, unknown_key
from mainstem.model.errors import ErrorCode, InvalidRequest

CurrentText = Callable[[ConfigKey], str | None]
Refusal = Callable[[str], InvalidRequest]


def changed(
    configs: Mapping[str, str],
    changes: Sequence[ConfigChange],
    keys: Mapping[str, ConfigKey],
    current: CurrentText,
    refusal: Refusal | None = None,
) -> dict[str, str]:
    """``configs`` after ``changes``.

    Args:
        configs: what is set now.
        changes: at most one per name.
        keys: every name that may be set.
        current: the text in effect, set or default; lists are appended to it.
        refusal: the error for a name that may not be set; by default that it is unknown.

    Raises:
        InvalidRequest: a name twice, an unknown one, a missing value, a list operation on something
            that is no list.
    """
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, "a config name appears more than once")
    after = dict(configs)
    for change in changes:
        key = keys.get(change.name)
        if change.operation == "delete":
            # Also for unknown names: what an earlier release accepted can still be deleted.
            after.pop(change.name, None)
            continue
        if key is None:
            raise unknown_key(change.name, keys) if refusal is None else refusal(change.name)
        if change.value is None:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                f"{change.operation} of {change.name} needs a value",
                subject=change.name,
            )
        if change.operation == "set":
            after[change.name] = change.value
        else:
            after[change.name] = _list_after(change, key, after.get(change.name) or current(key))
    return after


def _list_after(change: ConfigChange, key: ConfigKey, before: str | None) -> str:
    if key.type != LIST:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"{change.operation} needs a list, {key.name} is {key.type}",
            subject=key.name,
            remedy="use set",
        )
    words = [word.strip() for word in (before or "").split(",") if word.strip()]
    named = [word.strip() for word in (change.value or "").split(",") if word.strip()]
    if change.operation == "append":
        words += [word for word in named if word not in words]
    else:
        words = [word for word in words if word not in named]
    return ",".join(words)


def without_nulls(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The settings of a request, none of which may be null."""
    for name, value in configs.items():
        if value is None:
            raise InvalidRequest(ErrorCode.INVALID_CONFIG, f"{name} has no value", subject=name)
    return {name: value for name, value in configs.items() if value is not None}
