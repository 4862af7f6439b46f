"""The status of all pipelines: for the status command, the HTTP port and the metrics."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from mainstem.model.versioned_json import FIRST
from mainstem.pipelines.connector.progress import SourceProgress
from mainstem.pipelines.connector.state_file import read_json, replace_json
from mainstem.pipelines.running.restart_policy import PipelineState
from mainstem.telemetry.health import Component, Health, HealthState, summarize

FILE_NAME = "status.json"
METRIC_PREFIX = "mainstem_pipeline"


class PipelineStatus(Struct, frozen=True, kw_only=True):
    """The status of one pipeline; ``error`` is kept until a batch succeeds again."""

    id: str
    connector: str
    state: PipelineState
    error: str = ""
    restarts: int = 0
    next_start_s: float = 0.0
    batches: int = 0
    records: int = 0
    dead_letters: int = 0
    batch_ms: int = 0
    records_per_second: float = 0.0
    last_batch_at: float = 0.0
    progress: SourceProgress | None = None
    gauges: dict[str, float] = {}


class Status(Struct, frozen=True, kw_only=True):
    """The status of all pipelines of one process; times are seconds since 1970."""

    pid: int
    file: str
    started_at: float
    updated_at: float
    pipelines: tuple[PipelineStatus, ...]
    stopping: bool = False
    version: int = FIRST


def health_of(status: Status) -> Health:
    """The health of the process; it is failed only when all pipelines have failed."""
    enabled = [each for each in status.pipelines if each.state is not PipelineState.DISABLED]
    if enabled and all(each.state is PipelineState.FAILED for each in enabled):
        parts = [Component(each.id, HealthState.FAILED, each.error) for each in enabled]
    else:
        parts = [Component(each.id, _health(each), each.error) for each in enabled]
    if status.stopping:
        parts.append(Component("connect", HealthState.STOPPING))
    elif not enabled:
        parts.append(Component("connect", HealthState.OK, "every pipeline is disabled"))
    return summarize(parts)


def _health(pipeline: PipelineStatus) -> HealthState:
    if pipeline.state is PipelineState.STARTING or (
        pipeline.state is PipelineState.WAITING and not pipeline.error
    ):
        return HealthState.DEGRADED if pipeline.restarts else HealthState.STARTING
    if pipeline.state in {PipelineState.WAITING, PipelineState.FAILED} or pipeline.error:
        return HealthState.DEGRADED
    return HealthState.OK


def metrics_text(status: Status) -> str:
    """The metrics in Prometheus' text format."""
    families: list[tuple[str, str, str, dict[str, float]]] = [
        ("records_total", "counter", "Records delivered.", {}),
        ("dead_letters_total", "counter", "Records sent to a dead-letter topic.", {}),
        ("batches_total", "counter", "Micro-batches done.", {}),
        ("restarts_total", "counter", "Restarts after a failure.", {}),
        ("batch_milliseconds", "gauge", "Duration of the last micro-batch.", {}),
        ("records_per_second", "gauge", "Rate of the last micro-batch.", {}),
        ("last_batch_timestamp_seconds", "gauge", "End time of the last micro-batch.", {}),
    ]
    for each in status.pipelines:
        values = (
            each.records,
            each.dead_letters,
            each.batches,
            each.restarts,
            each.batch_ms,
            each.records_per_second,
            each.last_batch_at,
        )
        for family, value in zip(families, values, strict=True):
            family[3][f'pipeline="{each.id}",connector="{each.connector}"'] = value
    return "".join(_exposed(families, status))


def _exposed(
    families: list[tuple[str, str, str, dict[str, float]]], status: Status
) -> Iterator[str]:
    for name, kind, text, values in families:
        yield f"# HELP {METRIC_PREFIX}_{name} {text}\n# TYPE {METRIC_PREFIX}_{name} {kind}\n"
        for labels, value in values.items():
            yield f"{METRIC_PREFIX}_{name}{{{labels}}} {value}\n"
    yield f"# HELP {METRIC_PREFIX}_connector Gauges of the connector.\n"
    yield f"# TYPE {METRIC_PREFIX}_connector gauge\n"
    for each in status.pipelines:
        for name, value in each.gauges.items():
            labels = f'pipeline="{each.id}",gauge="{_label(name)}"'
            yield f"{METRIC_PREFIX}_connector{{{labels}}} {value}\n"
    yield f"# HELP {METRIC_PREFIX}_state 1 for the current state of a pipeline.\n"
    yield f"# TYPE {METRIC_PREFIX}_state gauge\n"
    for each in status.pipelines:
        for state in PipelineState:
            labels = f'pipeline="{each.id}",state="{state}"'
            yield f"{METRIC_PREFIX}_state{{{labels}}} {int(each.state is state)}\n"


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def write_status(state_dir: Path, status: Status) -> None:
    """Replace the status file atomically."""
    replace_json(state_dir / FILE_NAME, status)


def read_status(state_dir: Path) -> Status | None:
    """The last status of the process that uses the folder; None when there never was one."""
    return read_json(state_dir / FILE_NAME, Status, "a status of pipelines")
