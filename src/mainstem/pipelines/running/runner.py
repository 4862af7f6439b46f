"""Runs every pipeline of a file in one Spark session until stopped.

Guarantees: a failing pipeline does not affect the others; a failed one is restarted after a
backoff; queries are stopped between batches; the status is written at every relevant change. If
Spark itself terminates, the process ends, so that its supervisor can restart it.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msgspec import Struct
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.pipelines.connector.gauges import read_gauges
from mainstem.pipelines.connector.progress import read_progress
from mainstem.pipelines.connector.shapes import FindingSeverity
from mainstem.pipelines.file.loader import Pipeline, PipelineFile
from mainstem.pipelines.running.failure import StartFailed, is_final, sentence
from mainstem.pipelines.running.query_builder import PendingQuery, QueryBuilder
from mainstem.pipelines.running.query_counts import ProgressListener
from mainstem.pipelines.running.restart_policy import PipelineState, RestartPolicy
from mainstem.pipelines.running.spark_session import activate
from mainstem.pipelines.running.status import PipelineStatus, Status, write_status
from mainstem.pipelines.running.topics import ensure_topics, required_topics
from mainstem.telemetry.logs import logger

ROUND_S = 0.1
STATUS_EVERY_S = 1.0
STARTERS_MAX = 16
# Spark gives the Python process of a source ten seconds to start; more of them at once than there
# are cores might all time out, again and again.
OPENED_AT_ONCE = os.cpu_count() or 1
OPENING_TIMEOUT_S = 60.0
OPENING_POLL_S = 0.02
LAST_REPORTS_MS = 5_000
BETWEEN_BATCHES_POLL_S = 0.005
# Spark's exceptions when a query, or Spark itself, has terminated.
SPARK_ERRORS = (PySparkException, Py4JError, OSError)

_log = logger("pipelines")


class _Job:
    """One pipeline and its running queries."""

    def __init__(self, pipeline: Pipeline, policy: RestartPolicy) -> None:
        self.pipeline = pipeline
        self.policy = policy
        self.queries: list[StreamingQuery] = []
        self.start: Future[list[StreamingQuery]] | None = None
        self.batches_seen = 0


class RunSummary(Struct, frozen=True):
    """The result of a run."""

    failed: tuple[str, ...]
    finished: tuple[str, ...]


class PipelineRunner:
    """Starts, monitors and stops the pipelines of one file.

    Args:
        file: the pipelines to run.
        spark: the session.
        state_dir: the locked state folder.
        once: end when all current records are processed; sources first, then sinks.
    """

    def __init__(
        self, file: PipelineFile, spark: SparkSession, state_dir: Path, *, once: bool = False
    ) -> None:
        self._file = file
        self._spark = spark
        self._state_dir = state_dir
        self._once = once
        model = file.model
        self._assembly = QueryBuilder(spark, model.broker, model.settings, state_dir)
        self._listener = ProgressListener()
        self._jobs = [
            _Job(each, RestartPolicy(model.settings.retry, enabled=each.entry.enabled))
            for each in file.pipelines
        ]
        self._opening = threading.BoundedSemaphore(OPENED_AT_ONCE)
        self._started_at = time.time()
        self._stopping = threading.Event()
        self.status = self._observe()

    def run(self, stop: threading.Event, each_round: Callable[[Status], None]) -> RunSummary:
        """Run until ``stop`` is set or every pipeline has ended."""
        self._spark.streams.addListener(self._listener)
        written_at = float("-inf")
        with ThreadPoolExecutor(STARTERS_MAX, thread_name_prefix="pipeline") as starters:
            try:
                while not stop.is_set() and not all(job.policy.has_ended for job in self._jobs):
                    changed = self._round(starters)
                    self.status = self._observe()
                    if changed or time.monotonic() - written_at >= STATUS_EVERY_S:
                        write_status(self._state_dir, self.status)
                        written_at = time.monotonic()
                    each_round(self.status)
                    stop.wait(ROUND_S)
            finally:
                self._stop_all(starters)
                self._read_last_output()
                self.status = self._observe()
                write_status(self._state_dir, self.status)
                each_round(self.status)
        return RunSummary(self._named(PipelineState.FAILED), self._named(PipelineState.FINISHED))

    def _named(self, state: PipelineState) -> tuple[str, ...]:
        return tuple(job.pipeline.id for job in self._jobs if job.policy.state is state)

    def _round(self, starters: ThreadPoolExecutor) -> bool:
        """Check every pipeline once; returns whether any changed its state."""
        changed = False
        for job in self._jobs:
            before = job.policy.state
            if job.start is not None:
                self._collect(job)
            elif job.policy.state is PipelineState.RUNNING:
                self._watch(job)
            elif job.policy.is_due(time.monotonic()) and not self._waits_for_sources(job):
                job.policy.starting()
                job.start = starters.submit(self._start, job.pipeline)
            if job.policy.state is not before:
                changed = True
                self._log_state(job)
        return changed

    def _waits_for_sources(self, job: _Job) -> bool:
        """With ``once``, sinks start when sources have ended, to process their records."""
        return (
            self._once
            and job.pipeline.kind == "sink"
            and any(
                not each.policy.has_ended for each in self._jobs if each.pipeline.kind == "source"
            )
        )

    def _start(self, pipeline: Pipeline) -> list[StreamingQuery]:
        """Start a pipeline; runs in a separate thread, because connecting may take long."""
        activate(self._spark)
        model = self._file.model
        ensure_topics(model.broker, model.settings.topic, required_topics(pipeline.entry, model))
        for finding in pipeline.connector.check(pipeline.config):
            if finding.severity is FindingSeverity.ERROR:
                text = (
                    f"{finding.message} ({finding.remedy})" if finding.remedy else finding.message
                )
                raise StartFailed(text, retriable=finding.retriable)
        started: list[StreamingQuery] = []
        try:
            for query in self._assembly.queries(pipeline):
                started.append(self._open(query))  # noqa: PERF401
        except BaseException:
            for running in started:
                running.stop()
            raise
        return started

    def _open(self, query: PendingQuery) -> StreamingQuery:
        """Start a query; returns when its source has answered once, or has failed to."""
        with self._opening:
            if self._stopping.is_set():
                raise StartFailed("stopped on request", retriable=True)
            started = query.start(once=self._once)
            deadline = time.monotonic() + OPENING_TIMEOUT_S
            while started.isActive and _asks_first(started) and time.monotonic() < deadline:
                if self._stopping.wait(OPENING_POLL_S):
                    break
            return started

    def _collect(self, job: _Job) -> None:
        assert job.start is not None
        if not job.start.done():
            return
        start, job.start = job.start, None
        try:
            job.queries = start.result()
        except Exception as error:  # noqa: BLE001
            # Third-party connectors may raise anything; the other pipelines continue.
            self._failed(job, error)
        else:
            job.batches_seen = self._listener.counts(job.pipeline.id).batches
            job.policy.started()

    def _watch(self, job: _Job) -> None:
        batches = self._listener.counts(job.pipeline.id).batches
        if batches > job.batches_seen:
            job.batches_seen = batches
            job.policy.progressed()
        ended = [query for query in job.queries if not _answered(getattr, query, "isActive")]
        errors = [error for query in ended if (error := _answered(query.exception)) is not None]
        if errors:
            self._stop_queries(job.queries)
            self._failed(job, errors[0])
        elif len(ended) == len(job.queries):
            job.policy.finished()
        elif ended and not self._once:
            self._stop_queries(job.queries)
            self._failed(job, StartFailed("a query ended unexpectedly", retriable=True))

    def _failed(self, job: _Job, error: BaseException) -> None:
        text = self._file.secrets.redact(sentence(error))
        _log.debug("full error", extra={"pipeline": job.pipeline.id, "text": str(error)})
        job.queries = []
        job.policy.failed(time.monotonic(), text, retriable=not is_final(error))

    def _log_state(self, job: _Job) -> None:
        policy, facts = job.policy, {"pipeline": job.pipeline.id}
        if policy.state is PipelineState.WAITING:
            pause_s = round(policy.pause_left(time.monotonic()), 1)
            _log.warning("failed: %s", policy.error, extra={**facts, "next_start_s": pause_s})
        elif policy.state is PipelineState.FAILED:
            _log.error("gave up: %s", policy.error, extra=facts)
        else:
            _log.info("%s", policy.state, extra=facts)

    def _stop_all(self, starters: ThreadPoolExecutor) -> None:
        self._stopping.set()
        self.status = self._observe()
        for job in self._jobs:
            if job.start is not None:
                try:
                    job.queries = job.start.result()
                except Exception as error:  # noqa: BLE001
                    _log.warning("start failed while stopping: %s", sentence(error))
        running = [job for job in self._jobs if job.queries]
        list(starters.map(lambda job: self._stop_queries(job.queries), running))
        for job in self._jobs:
            job.policy.stopped()

    def _read_last_output(self) -> None:
        """Wait for Spark's pending reports, so that the last batches are counted."""
        try:
            bus = self._spark.sparkContext._jsc.sc().listenerBus()
            bus.waitUntilEmpty(LAST_REPORTS_MS)
            self._spark.streams.removeListener(self._listener)
        except (Py4JError, OSError) as error:
            _log.debug("the last progress reports are lost", extra={"text": sentence(error)})

    def _stop_queries(self, queries: Iterable[StreamingQuery]) -> None:
        """Stop each query between two batches, or within one after the timeout."""
        deadline = time.monotonic() + self._file.model.settings.stop_timeout_ms / 1000
        for query in queries:
            try:
                while query.isActive and _is_busy(query):
                    if time.monotonic() >= deadline:
                        _log.warning("stopped during a batch", extra={"query": query.name})
                        break
                    time.sleep(BETWEEN_BATCHES_POLL_S)
                query.stop()
            except SPARK_ERRORS as error:
                _log.warning("stop failed", extra={"reason": sentence(error)})

    def _observe(self) -> Status:
        now = time.monotonic()
        return Status(
            pid=os.getpid(),
            file=self._file.name,
            started_at=self._started_at,
            updated_at=time.time(),
            pipelines=tuple(self._seen(job, now) for job in self._jobs),
            stopping=self._stopping.is_set(),
        )

    def _seen(self, job: _Job, now: float) -> PipelineStatus:
        counts = self._listener.counts(job.pipeline.id)
        folder = self._assembly.folder(job.pipeline) / "connector"
        return PipelineStatus(
            id=job.pipeline.id,
            connector=job.pipeline.entry.connector,
            state=job.policy.state,
            error=job.policy.error,
            restarts=job.policy.restarts,
            next_start_s=round(job.policy.pause_left(now), 3),
            batches=counts.batches,
            records=counts.records,
            dead_letters=counts.dead_letters,
            batch_ms=counts.batch_ms,
            records_per_second=counts.records_per_second,
            last_batch_at=counts.last_batch_at,
            progress=read_progress(folder),
            gauges=read_gauges(folder),
        )


def _is_busy(query: StreamingQuery) -> bool:
    """Whether the query is within a batch, or still opening its source."""
    status = query.status
    return bool(status["isTriggerActive"]) or "Initializing" in str(status["message"])


def _asks_first(query: StreamingQuery) -> bool:
    """Whether a query that was just started waits for the first answer of its source."""
    message = str(query.status["message"])
    return "Initializing" in message or "Getting offsets" in message


def _answered(question: Callable[..., Any], *about: Any) -> Any:
    """The status message of a query; Spark may terminate between two calls."""
    try:
        return question(*about)
    except (Py4JError, OSError) as error:
        raise Unavailable(
            ErrorCode.SHUTTING_DOWN,
            f"Spark has terminated: {sentence(error)}",
            subject="spark",
            remedy="restart; increase settings.spark.driver_memory",
        ) from None
