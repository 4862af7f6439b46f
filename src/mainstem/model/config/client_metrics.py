"""Settings of a client metrics subscription (KIP-714), by Kafka's names."""

from collections.abc import Mapping

from mainstem.model.config.key import INT, LIST, ConfigKey, unknown_key
from mainstem.model.errors import ErrorCode, InvalidRequest

METRICS = "metrics"
INTERVAL = "interval.ms"
MATCH = "match"

INTERVAL_MS_DEFAULT = 300_000
ALL_METRICS = "*"

SELECTORS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""Properties by which a subscription selects clients."""

CLIENT_METRICS_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            name=INTERVAL,
            type=INT,
            default=str(INTERVAL_MS_DEFAULT),
            documentation="How often clients push their metrics.",
            at_least=100,
            at_most=3_600_000,
        ),
        ConfigKey(
            name=MATCH,
            type=LIST,
            default="",
            documentation=(
                "Which clients are selected: a list of selector=expression, all of which must "
                f"match. Selectors are {', '.join(SELECTORS)}. Empty: every client."
            ),
        ),
        ConfigKey(
            name=METRICS,
            type=LIST,
            default="",
            documentation=(
                "Prefixes of the names of metrics that clients push; * for all of them. "
                "Empty: none."
            ),
        ),
    )
}
"""Every setting of a subscription by name."""


def selectors_of(text: str) -> dict[str, str]:
    """The expressions in a ``match``, by selector.

    Raises:
        InvalidRequest: an unknown selector, one without an expression, or one given twice.
    """
    found: dict[str, str] = {}
    words = CLIENT_METRICS_KEYS[MATCH].parse(text)
    assert isinstance(words, tuple), "it is a list"
    for word in words:
        name, equals, pattern = word.partition("=")
        name, pattern = name.strip(), pattern.strip()
        if not equals or not pattern or name not in SELECTORS or name in found:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"{word[:100]!r} is not a selector of clients",
                subject=MATCH,
                remedy=f"use selector=expression, each selector once: {', '.join(SELECTORS)}",
            )
        found[name] = pattern
    return found


def check_client_metrics_configs(configs: Mapping[str, str]) -> None:
    """Check names and values; expressions are not compiled here.

    Raises:
        InvalidRequest: an unknown name, a value out of bounds.
    """
    for name, text in configs.items():
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            raise unknown_key(name, CLIENT_METRICS_KEYS, "client metrics")
        key.parse(text)
    selectors_of(configs.get(MATCH, ""))
