"""Rules between the settings of a pipeline file, which types cannot express."""

import fnmatch
import re
from collections.abc import Iterator
from datetime import datetime

from mainstem.model.errors import MainstemError
from mainstem.model.topic_name import check_topic_name
from mainstem.pipelines.connector.spec import Spec
from mainstem.pipelines.file.model import FileModel, SinkEntry, SourceEntry
from mainstem.pipelines.problems import FileProblem

NAME = r"[A-Za-z0-9_-]{1,100}"
VERSIONS = {"1", "1.0"}
EXPECTED = ("topic", "key", "value", "headers")
EXPECTED_DEAD = (*EXPECTED, "error", "step")
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_NO_REGISTRY = (
    "a schema registry is not supported",
    "remove it; Avro uses single-object encoding",
)


def problems_of(model: FileModel) -> Iterator[FileProblem]:
    """Problems of the file as a whole."""
    if str(model.version) not in VERSIONS:
        yield FileProblem(
            "version", f"version {model.version} is not supported", 'write version: "1.0"'
        )
    if not model.sources and not model.sinks:
        yield FileProblem("", "neither sources nor sinks are defined")
    if isinstance(model.distributed, dict) and model.distributed.get("enabled", True):
        yield FileProblem(
            "distributed",
            "work is distributed by Spark, not by connect processes",
            "remove it and set settings.spark.master",
        )
    elif model.distributed is not None and not isinstance(model.distributed, dict):
        yield FileProblem("distributed", "expected a mapping")
    health = model.settings.health
    if health.enabled and health.host not in LOOPBACK and not health.insecure:
        yield FileProblem(
            "settings.health.host",
            f"{health.host} is accessible from other machines without authentication",
            "use 127.0.0.1, or set settings.health.insecure: true",
        )
    tls = model.broker.tls
    if tls is not None and (tls.cert_path is None) != (tls.key_path is None):
        yield FileProblem("broker.tls", "cert_path and key_path must be set together")
    if tls is not None and tls.insecure:
        yield FileProblem(
            "broker.tls.insecure",
            "certificates are always verified: without that, records could be intercepted",
            "set the issuer's certificate in broker.tls.ca_path",
        )
    if tls is not None and tls.server_name is not None:
        yield FileProblem(
            "broker.tls.server_name",
            "the certificate must match the name in bootstrap_servers",
            "use the certificate's name in bootstrap_servers",
        )
    yield from _groups(model)
    yield from _cases(model)


def warnings_of(model: FileModel) -> Iterator[FileProblem]:
    """Settings that are valid, but may not have the expected effect."""
    for name, entry in model.sinks.items():
        if entry.offset_commit_interval is not None:
            yield FileProblem(
                f"sinks.{name}.offset_commit_interval",
                "has no effect: progress is committed with every micro-batch",
            )
    if model.broker.metadata_refresh_ms is not None:
        yield FileProblem(
            "broker.metadata_refresh_ms", "has no effect: metadata is refreshed when it is outdated"
        )
    if model.settings.telemetry is not None:
        yield FileProblem("settings.telemetry", "has no effect: scrape the metrics instead")
    entries: list[SourceEntry | SinkEntry] = [*model.sources.values(), *model.sinks.values()]
    if entries and not any(entry.enabled for entry in entries):
        yield FileProblem("", "every pipeline is disabled")


def problems_of_entry(
    path: str, entry: SourceEntry | SinkEntry, spec: Spec | None
) -> Iterator[FileProblem]:
    """Problems of one source or sink; ``spec`` is None if its connector is unknown."""
    if entry.schema_registry_url is not None:
        yield FileProblem(f"{path}.schema_registry_url", *_NO_REGISTRY)
    if "schema_registry_url" in entry.config:
        yield FileProblem(f"{path}.config.schema_registry_url", *_NO_REGISTRY)
    if isinstance(entry, SourceEntry):
        yield from _topic(f"{path}.topic", entry.topic)
        for index, route in enumerate(entry.tables):
            yield from _topic(f"{path}.tables[{index}].topic", route.topic)
        if entry.rate_limit is not None and spec is not None and not spec.limits_rows:
            yield FileProblem(
                f"{path}.rate_limit",
                f"the {spec.name} source does not support rate limits",
                "limit it in its own config",
            )
        if entry.dead_letter_topic == entry.topic:
            yield FileProblem(f"{path}.dead_letter_topic", "is also the topic of the source")
    else:
        yield from _sink_topics(path, entry)
    if entry.dead_letter_topic is not None:
        yield from _topic(f"{path}.dead_letter_topic", entry.dead_letter_topic)


def is_pattern(topic: str) -> bool:
    """Whether a sink's topic is a pattern rather than a name."""
    return any(letter in topic for letter in "*?")


def _sink_topics(path: str, entry: SinkEntry) -> Iterator[FileProblem]:
    for index, topic in enumerate(entry.topics):
        if not is_pattern(topic):
            yield from _topic(f"{path}.topics[{index}]", topic)
        if entry.dead_letter_topic and fnmatch.fnmatchcase(entry.dead_letter_topic, topic):
            yield FileProblem(
                f"{path}.dead_letter_topic",
                f"is read by the sink itself through {topic!r}: dead letters would loop",
                "choose a name that no topic of the sink matches",
            )
    patterns = [is_pattern(topic) for topic in entry.topics]
    if isinstance(entry.start_offset, int):
        if entry.start_offset < 0:
            yield FileProblem(f"{path}.start_offset", "an offset must not be negative")
        if any(patterns):
            yield FileProblem(f"{path}.start_offset", "a number requires topics without patterns")
    elif entry.start_offset not in {"earliest", "latest"} and not _is_moment(entry.start_offset):
        remedy = "use earliest, latest, an ISO 8601 timestamp or a number"
        yield FileProblem(
            f"{path}.start_offset", f"{entry.start_offset!r} is not a valid start offset", remedy
        )


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _topic(path: str, name: str) -> Iterator[FileProblem]:
    try:
        check_topic_name(name)
    except MainstemError as error:
        yield FileProblem(path, error.cause)


def _groups(model: FileModel) -> Iterator[FileProblem]:
    seen: dict[str, str] = {}
    for name, entry in model.sinks.items():
        group = group_of(name, entry)
        if group in seen:
            yield FileProblem(
                f"sinks.{name}.consumer_group",
                f"{group!r} is already used by sinks.{seen[group]}",
                "use a separate group for each sink",
            )
        seen[group] = name


def group_of(name: str, entry: SinkEntry) -> str:
    """The consumer group to which a sink's progress is committed."""
    return entry.consumer_group or f"pipeline-{name}"


def _cases(model: FileModel) -> Iterator[FileProblem]:
    known = {f"sources.{name}" for name in model.sources} | {
        f"sinks.{name}" for name in model.sinks
    }
    for index, case in enumerate(model.tests):
        if case.pipeline not in known:
            yield FileProblem(
                f"tests[{index}].pipeline",
                f"{case.pipeline} does not exist",
                f"known: {', '.join(sorted(known))}" if known else "",
            )
        for field, allowed in (("expect", EXPECTED), ("expect_dead", EXPECTED_DEAD)):
            for number, expected in enumerate(getattr(case, field)):
                for key in expected:
                    if key not in allowed:
                        path = f"tests[{index}].{field}[{number}].{key}"
                        yield FileProblem(path, "unknown key", f"known keys: {', '.join(allowed)}")


def pattern_of(topics: list[str]) -> str:
    """One regular expression for names and patterns; internal topics only when named."""
    parts = []
    for topic in topics:
        part = re.escape(topic).replace(r"\*", ".*").replace(r"\?", ".")
        hides_internal = is_pattern(topic) and not topic.startswith("__")
        parts.append(f"(?!__){part}" if hides_internal else part)
    return "|".join(parts)
