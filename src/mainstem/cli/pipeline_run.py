"""The parts of ``mainstem pipeline`` that need Spark."""

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.cli.errors import ExitCode, UsageFailure
from mainstem.model.errors import ErrorCode, InvalidRequest

if TYPE_CHECKING:
    from mainstem.pipelines.file.loader import Pipeline, PipelineFile
    from mainstem.pipelines.running.cases import CaseResult
    from mainstem.pipelines.running.status import Status


def run_file(file: "PipelineFile", *, once: bool, quiet: bool) -> int:
    """Run until asked to stop; returns the exit code."""
    from mainstem.cli.output.pipeline_progress import PipelineProgressBars
    from mainstem.pipelines.running.runner import PipelineRunner
    from mainstem.pipelines.running.spark_session import engine
    from mainstem.pipelines.running.state_folder import StateFolder
    from mainstem.telemetry.logs import logger

    log = _logging(file)
    for warning in file.warnings:
        log.warning("%s", warning)
    stop = threading.Event()
    settings = file.model.settings
    with (
        StateFolder(Path(settings.state_dir)) as folder,
        _stopped_by_signals(stop),
        engine(settings) as spark,
    ):
        runner = PipelineRunner(file, spark, folder.path, once=once)
        with _probes(file, lambda: runner.status), PipelineProgressBars(quiet=quiet) as bars:
            summary = runner.run(stop, bars.show)
    logger("pipelines").info(
        "ended", extra={"failed": list(summary.failed), "finished": list(summary.finished)}
    )
    return ExitCode.FAILED if summary.failed else ExitCode.OK


def print_dry_run(
    file: "PipelineFile", pipeline: "Pipeline", *, records: int, patience_s: float
) -> None:
    """Print what would have been written."""
    from mainstem.pipelines.connectors.stdout import as_json
    from mainstem.pipelines.running.dry_run import dry_run_pipeline
    from mainstem.pipelines.running.spark_session import engine

    _logging(file)
    with engine(file.model.settings) as spark:
        seen = dry_run_pipeline(file, pipeline, spark, records=records, patience_s=patience_s)
    for row in seen.good:
        print(file.secrets.redact(as_json(row)))
    for row in seen.dead:
        print("dead letter: " + file.secrets.redact(as_json(row)), file=sys.stderr)
    counted = f"{seen.taken} in, {len(seen.good)} out, {len(seen.dead)} dead letters"
    print(f"{pipeline.id}: {counted}; nothing was written", file=sys.stderr)


def run_cases(file: "PipelineFile") -> "list[CaseResult]":
    """Run the file's tests, each against its pipeline."""
    from mainstem.pipelines.running.cases import run_case
    from mainstem.pipelines.running.spark_session import engine

    if not file.cases:
        raise UsageFailure("the file has no tests", subject=file.name, remedy="add a tests section")
    _logging(file)
    with engine(file.model.settings) as spark:
        return [run_case(case, file.pipeline(case.pipeline), spark) for case in file.cases]


def schema_of(kind: str, which: str | None) -> dict[str, Any]:
    """The JSON Schema of a connector, a transform or the file."""
    import msgspec

    from mainstem.pipelines.connector.registry import Registry
    from mainstem.pipelines.file.model import FileModel
    from mainstem.pipelines.problems import nearest
    from mainstem.pipelines.transforms import step_schemas

    if kind == "file":
        return msgspec.json.schema(FileModel)
    registry = Registry()
    offered = {spec.kind: spec for spec in registry.inventory() if spec.name == kind}
    if which in offered:
        return offered[which].schema()
    if len(offered) == 1 and which is None:
        return next(iter(offered.values())).schema()
    if offered:
        raise UsageFailure(
            f"{kind} is {' and '.join(sorted(offered))}",
            subject=kind,
            remedy=f"choose one: schema {kind} {min(offered)}",
        )
    steps = step_schemas()
    if kind in steps:
        return steps[kind]
    known = [*registry.names(), *steps]
    raise InvalidRequest(
        ErrorCode.UNKNOWN_RESOURCE,
        "neither a connector nor a transform",
        subject=kind,
        remedy=nearest(kind, known) or f"known: {', '.join(known)}",
    )


def _logging(file: "PipelineFile") -> logging.Logger:
    from mainstem.pipelines.file.secrets import RedactingFilter
    from mainstem.telemetry import logs

    logs.configure(level=file.model.settings.log_level, style="auto", out=sys.stderr)
    for handler in logging.getLogger(logs.PACKAGE).handlers:
        handler.addFilter(RedactingFilter(file.secrets))
    return logs.logger("pipelines")


@contextlib.contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM request an orderly stop; a second one stops at once."""

    def asked(number: int, frame: object) -> None:
        del number, frame
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _probes(file: "PipelineFile", latest: "Callable[[], Status]") -> Iterator[None]:
    """Opens the HTTP ports that the file configures."""
    from mainstem.pipelines.running.probe_server import ProbeServer
    from mainstem.telemetry.logs import logger

    health, metrics = file.model.settings.health, file.model.settings.metrics
    own_port = metrics.enabled and metrics.port is not None
    wanted: list[tuple[int, frozenset[str]]] = []
    if health.enabled:
        serves = {"health"} | ({"metrics"} if metrics.enabled and not own_port else set())
        wanted.append((health.port, frozenset(serves)))
    if own_port and metrics.port is not None:
        wanted.append((metrics.port, frozenset({"metrics"})))
    with contextlib.ExitStack() as stack:
        for port, serves_here in wanted:
            server = ProbeServer(
                (health.host, port), latest, health_path=health.path, serves=serves_here
            )
            stack.enter_context(server)
            extra = {"address": server.address, "serves": sorted(serves_here)}
            logger("pipelines").info("listening", extra=extra)
        yield
