"""Reads the layers of configuration and remembers where each value came from.

    defaults < preset < file (TOML or YAML) < MAINSTEM_* environment < flags

A key that does not exist is an error that names its origin and the nearest key that does. Sizes and
times may be written with a unit wherever the name ends in it: ``64MiB`` for ``..._bytes``, ``7d``
for ``..._ms``.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NoReturn, get_args

import msgspec
from msgspec import Meta, Struct

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.node.config import DAY_MS, HOUR_MS, MINUTE_MS, PRESETS, SECOND_MS, Config

ENVIRONMENT_PREFIX = "MAINSTEM_"
DEFAULT_ORIGIN = "default"

_BYTES = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgt]?i?b?)", re.IGNORECASE)
_BYTES_FACTORS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_TIME = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|min|h|d)", re.IGNORECASE)
_TIME_FACTORS = {
    "ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "min": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS,
}  # fmt: skip


class Setting(Struct, frozen=True):
    """One leaf of the tree, as it is shown to people."""

    path: str
    value: object
    origin: str
    default: object
    documentation: str
    type: str

    @property
    def environment_name(self) -> str:
        """The variable that sets it."""
        return ENVIRONMENT_PREFIX + self.path.upper().replace(".", "__")


class Loaded(Struct, frozen=True):
    """A configuration and where each value came from."""

    config: Config
    preset: str
    origins: dict[str, str]

    def settings(self) -> Iterator[Setting]:
        """Every setting in the order of the tree."""
        for path, info in leaves():
            section, name = path.split(".")
            yield Setting(
                path=path,
                value=getattr(getattr(self.config, section), name),
                origin=self.origins.get(path, DEFAULT_ORIGIN),
                default=info.default,
                documentation=_meta(info.type).description or "",
                type=_type_text(info.type),
            )


def load(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    preset: str | None = None,
) -> Loaded:
    """Read every layer and check the result.

    Args:
        file: a ``.toml``, ``.yaml`` or ``.yml`` file.
        environment: the process environment; only ``MAINSTEM_<SECTION>__<NAME>`` is looked at,
            besides ``MAINSTEM_CONFIG`` and ``MAINSTEM_PRESET``.
        flags: dotted path to value; None values are ignored.
        preset: overrides the preset that environment or file name.

    Raises:
        InvalidRequest: an unknown key, a value out of bounds, an unreadable file, an address that
            others can reach although nobody logs in.
    """
    environment = environment or {}
    if file is None and environment.get("MAINSTEM_CONFIG"):
        file = Path(environment["MAINSTEM_CONFIG"])
    from_file = _read_file(file) if file is not None else {}
    file_preset = from_file.pop("preset", None)
    chosen = preset or environment.get("MAINSTEM_PRESET") or file_preset or "single"
    if chosen not in PRESETS:
        _refuse("preset", f"there is no preset {chosen!r}", f"choose from {', '.join(PRESETS)}")

    tree: dict[str, dict[str, object]] = {}
    origins: dict[str, str] = {}
    layers: list[tuple[str, Mapping[str, object]]] = [
        (f"preset {chosen}", _flatten(PRESETS[chosen], f"preset {chosen}")),
        (f"file {file}", _flatten(from_file, f"file {file}")),
        *((f"environment {name}", {path: value}) for name, path, value in _from(environment)),
        ("flag", {path: value for path, value in (flags or {}).items() if value is not None}),
    ]
    for origin, values in layers:
        for path, value in values.items():
            section, name = _known(path, origin).split(".")
            tree.setdefault(section, {})[name] = _coerce(path, value)
            origins[path] = origin
    config = _convert(tree, origins)
    _check_together(config)
    return Loaded(config=config, preset=str(chosen), origins=origins)


def leaves() -> Iterator[tuple[str, msgspec.structs.FieldInfo]]:
    """Every setting's dotted path and field."""
    for section in msgspec.structs.fields(Config):
        for info in msgspec.structs.fields(section.type):
            yield f"{section.name}.{info.name}", info


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on ``host``."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _read_file(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        _refuse(str(file), f"the configuration file cannot be read: {error}")
    try:
        if file.suffix == ".toml":
            return tomllib.loads(text)
        if file.suffix in {".yaml", ".yml"}:
            return _yaml(text)
    except ValueError as error:
        _refuse(str(file), f"the configuration file cannot be parsed: {error}")
    return _refuse(str(file), "the file's kind is unknown", "name it .toml, .yaml or .yml")


def _yaml(text: str) -> dict[str, Any]:
    # Imported here because most nodes start without a YAML file.
    import yaml  # noqa: PLC0415

    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ValueError("the top of the file is not a mapping")  # noqa: TRY004
    return loaded


def _flatten(tree: Mapping[str, object], origin: str) -> dict[str, object]:
    """Sections and names to dotted paths."""
    flat: dict[str, object] = {}
    for section, values in tree.items():
        if not isinstance(values, Mapping):
            _refuse(str(section), f"{origin} sets {section!r} outside a section", _nearest(section))
        flat |= {f"{section}.{name}": value for name, value in values.items()}
    return flat


def _from(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(variable, path, value) of every variable that is a setting or looks like a misspelt one."""
    paths = {path.replace(".", "_"): path for path, _ in leaves()}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if "__" in name:
            yield variable, name.replace("__", ".", 1), value
        elif name in paths:
            right = ENVIRONMENT_PREFIX + paths[name].upper().replace(".", "__")
            _refuse(variable, "section and name are joined by two underscores", f"set {right}")


def _known(path: str, origin: str) -> str:
    if path not in dict(leaves()):
        _refuse(path, f"{origin} sets a key that does not exist", _nearest(path))
    return path


def _nearest(path: str) -> str:
    paths = [known for known, _ in leaves()]
    close = difflib.get_close_matches(path, paths, n=1, cutoff=0.5)
    if not close:
        # A right name in a wrong section is the next most likely slip.
        name = path.rsplit(".", 1)[-1]
        by_name = {known.split(".")[1]: known for known in paths}
        close = [by_name[match] for match in difflib.get_close_matches(name, by_name, n=1)]
    return f"did you mean {close[0]}?" if close else "mainstem config show lists every key"


def _coerce(path: str, value: object) -> object:
    """Understand units and, for text from the environment or a flag, numbers and booleans."""
    if not isinstance(value, str):
        return value
    kind = dict(leaves())[path].type
    if "_bytes" in path and (match := _BYTES.fullmatch(value)):
        factor = _BYTES_FACTORS[match["unit"].lower().rstrip("b").rstrip("i")]
        return round(_number(match["number"]) * factor)
    if path.endswith("_ms") and (match := _TIME.fullmatch(value)):
        return round(_number(match["number"]) * _TIME_FACTORS[match["unit"].lower()])
    if value == "" and type(None) in get_args(_bare(kind)):
        return None
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return value  # the check of the whole tree reports it with its origin


def _number(digits: str) -> int | float:
    return float(digits) if "." in digits else int(digits)


def _convert(tree: dict[str, dict[str, object]], origins: Mapping[str, str]) -> Config:
    try:
        return msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        cause, _, place = str(error).partition(" - at `$.")
        path = place.rstrip("`")
        origin = origins.get(path, "configuration")
        section, _, name = path.partition(".")
        value = tree.get(section, {}).get(name)
        _refuse(path, f"{origin} sets {value!r}: {cause[:1].lower()}{cause[1:]}")


def _check_together(config: Config) -> None:
    """Rules that concern more than one value."""
    if config.groups.min_session_timeout_ms > config.groups.max_session_timeout_ms:
        _refuse("groups.min_session_timeout_ms", "it is larger than groups.max_session_timeout_ms")
    if config.log.preallocate_first_bytes > config.log.preallocate_max_bytes:
        _refuse("log.preallocate_first_bytes", "it is larger than log.preallocate_max_bytes")
    listeners = [("kafka.host", config.kafka.host)]
    if config.http.enabled:
        listeners.append(("http.host", config.http.host))
    for path, host in listeners:
        if not (config.node.insecure or is_loopback(host)):
            _refuse(
                path,
                f"{host} can be reached from other machines and nobody would have to log in",
                "listen on 127.0.0.1, or pass --insecure on a network you trust entirely",
            )


def _refuse(subject: str, cause: str, remedy: str = "") -> NoReturn:
    raise InvalidRequest(ErrorCode.INVALID_CONFIG, cause, subject=subject, remedy=remedy)


def _meta(annotated: Any) -> Meta:
    return next((arg for arg in get_args(annotated) if isinstance(arg, Meta)), Meta())


def _bare(annotated: Any) -> Any:
    return annotated.__origin__ if hasattr(annotated, "__metadata__") else annotated


def _type_text(annotated: Any) -> str:
    """The type in words: ``int``, ``text or nothing``, ``fsync | written``."""
    bare = _bare(annotated)
    arguments = get_args(bare)
    if not arguments:
        name: str = bare.__name__
        return {"str": "text", "bool": "true | false"}.get(name, name)
    if type(None) in arguments:
        return (
            " | ".join(_type_text(arg) for arg in arguments if arg is not type(None)) + " | unset"
        )
    return " | ".join(str(argument) for argument in arguments)
