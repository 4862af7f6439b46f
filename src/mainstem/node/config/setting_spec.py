"""Single settings: which exist, what they are called, and how text becomes a value.

A leaf is either a field of the tree in ``config`` or the default of a topic setting, which every
topic setting has: ``topics.retention_ms`` for ``retention.ms``. Sizes and times may be written with
a unit wherever the name ends in one: ``64MiB`` for ``..._bytes``, ``7d`` for ``..._ms``.
"""

import difflib
import functools
import re
from collections.abc import Mapping
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from mainstem.model.config.topic import TOPIC_KEYS
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.node.config.settings import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Config

ENVIRONMENT_PREFIX = "MAINSTEM_"

_BYTES = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgt]?i?b?)", re.ASCII | re.IGNORECASE)
_BYTES_FACTORS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_TIME = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|min|m|h|d)", re.ASCII | re.IGNORECASE
)
_TIME_FACTORS = {
    "ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "min": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS,
}  # fmt: skip


class SettingSpec(Struct, frozen=True):
    """One setting. ``topic_key`` is Kafka's name when it is the default of a topic setting."""

    path: str
    default: object
    documentation: str
    allowed: str
    type: Any
    topic_key: str | None = None

    @property
    def environment_name(self) -> str:
        """The variable that sets it."""
        return ENVIRONMENT_PREFIX + self.path.upper().replace(".", "__")

    def value(self, config: Config) -> object:
        """The value in ``config``."""
        if self.topic_key is not None:
            return config.topics.defaults.get(self.topic_key, self.default)
        section, name = self.path.split(".")
        return getattr(getattr(config, section), name)

    def coerce(self, value: object) -> object:
        """Understand units and, for text from the environment or a flag, numbers and booleans."""
        if isinstance(value, str):
            value = _with_unit(self.path, value)
        if self.topic_key is not None:
            return _kafka_text(value)
        if not isinstance(value, str):
            return value
        if get_origin(_bare(self.type)) is tuple:
            return _listed(value)
        if value == "" and type(None) in get_args(_bare(self.type)):
            return None
        try:
            return msgspec.convert(value, self.type, strict=False)
        except msgspec.ValidationError:
            return value  # the check of the whole tree reports it with its origin


@functools.cache
def leaves() -> Mapping[str, SettingSpec]:
    """Every setting by its dotted path, in the order of the tree."""
    found = {}
    for section in msgspec.structs.fields(Config):
        for info in msgspec.structs.fields(section.type):
            path = f"{section.name}.{info.name}"
            if path != "topics.defaults":
                found[path] = SettingSpec(
                    path=path,
                    default=info.default,
                    documentation=_meta(info.type).description or "",
                    allowed=_allowed(info.type),
                    type=info.type,
                )
        if section.name == "topics":
            found |= _topic_leaves()
    return found


def nearest(path: str) -> str:
    """The remedy for a key that does not exist."""
    close = difflib.get_close_matches(path, leaves(), n=1, cutoff=0.5)
    if not close:
        # A right name in a wrong section is the next most likely mistake.
        name = path.rsplit(".", 1)[-1]
        by_name = {known.split(".")[1]: known for known in leaves()}
        close = [by_name[match] for match in difflib.get_close_matches(name, by_name, n=1)]
    return f"did you mean {close[0]}?" if close else "mainstem config show lists every key"


def _topic_leaves() -> dict[str, SettingSpec]:
    return {
        f"topics.{key.name.replace('.', '_')}": SettingSpec(
            path=f"topics.{key.name.replace('.', '_')}",
            default=key.default,
            documentation=key.documentation,
            allowed=key.allowed(),
            type=str,
            topic_key=key.name,
        )
        for key in TOPIC_KEYS.values()
    }


def _with_unit(path: str, text: str) -> object:
    if "_bytes" in path and (match := _BYTES.fullmatch(text)):
        factor = _BYTES_FACTORS[match["unit"].lower().rstrip("b").rstrip("i")]
        return round(_number(match["number"]) * factor)
    if path.endswith("_ms") and (match := _TIME.fullmatch(text)):
        return round(_number(match["number"]) * _TIME_FACTORS[match["unit"].lower()])
    return text


def _listed(text: str) -> object:
    """Items separated by commas, or a JSON list where items contain commas."""
    if text.lstrip().startswith("["):
        try:
            return msgspec.json.decode(text)
        except DECODE_ERRORS:
            return text  # the check of the whole tree reports it with its origin
    return [item.strip() for item in text.split(",") if item.strip()]


def _number(digits: str) -> int | float:
    return float(digits) if "." in digits else int(digits)


def _kafka_text(value: object) -> str:
    """A value as a Kafka client would send it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return str(value)


def _meta(annotated: Any) -> Meta:
    return next((arg for arg in get_args(annotated) if isinstance(arg, Meta)), Meta())


def _bare(annotated: Any) -> Any:
    return annotated.__origin__ if hasattr(annotated, "__metadata__") else annotated


def _allowed(annotated: Any) -> str:
    """The type in words: ``int``, ``text or unset``, ``auto, text, json``."""
    bare = _bare(annotated)
    arguments = get_args(bare)
    if get_origin(bare) is tuple:
        return f"list of {_allowed(arguments[0])}"
    if not arguments:
        name: str = bare.__name__
        return {"str": "text", "bool": "true, false"}.get(name, name)
    if type(None) in arguments:
        return (
            " or ".join(_allowed(arg) for arg in arguments if arg is not type(None)) + " or unset"
        )
    return ", ".join(str(argument) for argument in arguments)
