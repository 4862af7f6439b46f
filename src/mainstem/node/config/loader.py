"""Reads the layers of configuration and records the origin of each value.

    defaults < preset < file (TOML or YAML) < MAINSTEM_* environment < flags

A key that does not exist is an error that names its origin and the nearest key that does.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from mainstem.model.config.node import check_node_configs
from mainstem.model.config.topic import TOPIC_KEYS, check_topic_configs
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.node.config.amqp import is_amqp_authentication_required
from mainstem.node.config.listener_spec import is_loopback, kafka_listeners
from mainstem.node.config.native import is_native_authentication_required
from mainstem.node.config.setting_spec import ENVIRONMENT_PREFIX, SettingSpec, leaves, nearest
from mainstem.node.config.settings import PRESETS, Config
from mainstem.security.authentication.certificate_names import NameRules
from mainstem.security.principals import parse_principal

DEFAULT_ORIGIN = "default"


class Setting(Struct, frozen=True):
    """One setting as it is displayed."""

    leaf: SettingSpec
    value: object
    origin: str


class LoadedConfig(Struct, frozen=True):
    """A configuration and the origin of each value."""

    config: Config
    preset: str
    origins: dict[str, str]

    def settings(self) -> Iterator[Setting]:
        """Every setting in the order of the tree."""
        for path, leaf in leaves().items():
            origin = self.origins.get(path, DEFAULT_ORIGIN)
            yield Setting(leaf=leaf, value=leaf.value(self.config), origin=origin)


def load(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    preset: str | None = None,
) -> LoadedConfig:
    """Read every layer and check the result.

    Args:
        file: a ``.toml``, ``.yaml`` or ``.yml`` file.
        environment: the process environment; only ``MAINSTEM_<SECTION>__<NAME>`` is read,
            besides ``MAINSTEM_CONFIG`` and ``MAINSTEM_PRESET``.
        flags: dotted path to value; None values are ignored.
        preset: overrides the preset that environment or file name.

    Raises:
        InvalidRequest: an unknown key, a value out of bounds, an unreadable file, an address that
            others can reach without a login.
    """
    environment = environment or {}
    if file is None and environment.get("MAINSTEM_CONFIG"):
        file = Path(environment["MAINSTEM_CONFIG"])
    from_file = _read_file(file) if file is not None else {}
    file_preset = from_file.pop("preset", None)
    chosen = preset or environment.get("MAINSTEM_PRESET") or file_preset or "single"
    if chosen not in PRESETS:
        _refuse("preset", f"there is no preset {chosen!r}", f"choose from {', '.join(PRESETS)}")

    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    layers: list[tuple[str, Mapping[str, object]]] = [
        (f"preset {chosen}", _flatten(PRESETS[chosen], f"preset {chosen}")),
        (f"file {file}", _flatten(from_file, f"file {file}")),
        *((f"environment {name}", {path: text}) for name, path, text in _from(environment)),
        ("flag", {path: value for path, value in (flags or {}).items() if value is not None}),
    ]
    for origin, layer in layers:
        for path, value in layer.items():
            if path not in leaves():
                _refuse(path, f"{origin} sets a key that does not exist", nearest(path))
            values[path] = leaves()[path].coerce(value)
            origins[path] = origin
    config = _convert(values, origins)
    _check_topic_defaults(config, origins)
    _check_together(config)
    return LoadedConfig(config=config, preset=str(chosen), origins=origins)


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
    return _refuse(str(file), "the file type is unknown", "name it .toml, .yaml or .yml")


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
            _refuse(str(section), f"{origin} sets {section!r} outside a section", nearest(section))
        flat |= {f"{section}.{name}": value for name, value in values.items()}
    return flat


def _from(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(variable, path, text) of every variable that is a setting or looks like a misspelt one."""
    joined = {path.replace(".", "_"): leaf for path, leaf in leaves().items()}
    for variable, text in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if "__" in name:
            yield variable, name.replace("__", ".", 1), text
        elif name in joined:
            right = joined[name].environment_name
            _refuse(variable, "section and name are joined by two underscores", f"set {right}")


def _convert(values: Mapping[str, object], origins: Mapping[str, str]) -> Config:
    tree: dict[str, dict[str, object]] = {}
    defaults: dict[str, object] = {}
    for path, value in values.items():
        section, name = path.split(".")
        if (key := leaves()[path].topic_key) is not None:
            defaults[key] = value
        else:
            tree.setdefault(section, {})[name] = value
    if defaults:
        tree.setdefault("topics", {})["defaults"] = defaults
    try:
        return msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        cause, _, place = str(error).partition(" - at `$.")
        path = place.rstrip("`")
        origin = origins.get(path, "configuration")
        _refuse(path, f"{origin} sets {values.get(path)!r}: {cause[:1].lower()}{cause[1:]}")


def _check_topic_defaults(config: Config, origins: Mapping[str, str]) -> None:
    """Each default alone, to name its origin; then all together."""
    for name, text in config.topics.defaults.items():
        path = f"topics.{name.replace('.', '_')}"
        try:
            TOPIC_KEYS[name].parse(text)
        except InvalidRequest as error:
            _refuse(path, f"{origins[path]} sets {text!r}: {error.cause}", error.remedy)
    check_topic_configs(config.topics.defaults)
    check_node_configs(config.kafka_names(), dynamic=False)


def _check_together(config: Config) -> None:
    """Rules that concern more than one value."""
    if config.groups.session_timeout_min_ms > config.groups.session_timeout_max_ms:
        _refuse("groups.session_timeout_min_ms", "it is larger than groups.session_timeout_max_ms")
    _check_listeners(config)


def _check_listeners(config: Config) -> None:
    """Require authentication on listeners that other machines reach, unless ``insecure`` is set."""
    specs = kafka_listeners(config)
    where = "kafka.listeners" if config.kafka.listeners else "kafka.host"
    known = config.tls.client_certificates == "required"
    listeners = [(where, spec.host, spec.sasl or (spec.tls and known)) for spec in specs]
    if config.http.enabled:
        asked = config.http.login or (config.http.tls and known)
        listeners.append(("http.host", config.http.host, asked))
        in_the_clear = config.http.login and not (config.http.tls or config.node.insecure)
        if in_the_clear and not is_loopback(config.http.host):
            _refuse(
                "http.tls",
                "passwords and tokens would be sent in clear text to other machines",
                "set http.tls, or pass --insecure behind a proxy that terminates TLS",
            )
    if config.amqp.enabled:
        listeners.append(("amqp.host", config.amqp.host, _amqp_asks(config)))
    if config.mqtt.enabled:
        listeners.append(("mqtt.host", config.mqtt.host, _mqtt_asks(config)))
    listeners += _native_listeners(config)
    for path, host, asks in listeners:
        if not (asks or config.node.insecure or is_loopback(host)):
            _refuse(
                path,
                f"{host} can be reached from other machines without a login",
                "listen on 127.0.0.1, require a login (kafka.listeners; login of the others), or "
                "pass --insecure on a network you trust entirely",
            )
    speaks_tls = (
        any(spec.tls for spec in specs)
        or (config.http.enabled and config.http.tls)
        or (config.amqp.enabled and config.amqp.tls)
    )
    speaks_tls = speaks_tls or (config.mqtt.enabled and config.mqtt.tls_port is not None)
    speaks_tls = speaks_tls or (config.native.enabled and config.native.tls)
    if speaks_tls and not (config.tls.certificate_file and config.tls.key_file):
        _refuse(
            "tls.certificate_file",
            "a listener uses TLS and there is no certificate or no key",
            "set tls.certificate_file and tls.key_file; mainstem cert creates them",
        )
    for principal in config.security.super_users:
        try:
            parse_principal(principal)
        except InvalidRequest as error:
            _refuse("security.super_users", error.cause, error.remedy)
    NameRules(config.tls.name_rules)


def _amqp_asks(config: Config) -> bool:
    """Whether AMQP clients log in; refuses clear-text logins from other machines."""
    amqp = config.amqp
    if amqp.login and not (amqp.tls or is_loopback(amqp.host) or config.node.insecure):
        _refuse(
            "amqp.tls",
            "passwords would be sent in clear text to other machines",
            "set amqp.tls, or pass --insecure behind a proxy that terminates TLS",
        )
    return is_amqp_authentication_required(config)


def _native_listeners(config: Config) -> list[tuple[str, str, bool]]:
    """The native listener, if there is one, and whether its clients log in."""
    native = config.native
    if not native.enabled:
        return []
    if native.login and not (native.tls or is_loopback(native.host) or config.node.insecure):
        _refuse(
            "native.tls",
            "passwords would be sent in clear text to other machines",
            "set native.tls, or pass --insecure behind a proxy that terminates TLS",
        )
    return [("native.host", native.host, is_native_authentication_required(config))]


def _mqtt_asks(config: Config) -> bool:
    """Whether MQTT clients log in; refuses clear-text logins from other machines."""
    mqtt = config.mqtt
    reached = mqtt.cleartext and not (is_loopback(mqtt.host) or config.node.insecure)
    if mqtt.login and reached:
        _refuse(
            "mqtt.cleartext",
            "passwords would be sent in clear text to other machines by mqtt.port",
            "set mqtt.tls_port and mqtt.cleartext = false, or pass --insecure behind a proxy "
            "that terminates TLS",
        )
    certificates = config.tls.client_certificates == "required" and not mqtt.cleartext
    return mqtt.login or certificates


def _refuse(subject: str, cause: str, remedy: str = "") -> NoReturn:
    raise InvalidRequest(ErrorCode.INVALID_CONFIG, cause, subject=subject, remedy=remedy)
