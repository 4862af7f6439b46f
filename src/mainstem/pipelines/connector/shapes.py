"""The interfaces of sources and sinks: what a connector provides and what it gets.

    source:  spec -> check -> discover -> read(spark, config, context)  -> a streaming DataFrame
    sink:    spec -> check -> write(frame, config, context)             -> a DataStreamWriter

A source returns a *wire frame* (``connector.wire``) or a frame of any columns, which are converted
to one JSON object per row. A sink gets a wire frame and returns a writer that is not started: of a
Python data source, of one of Spark's formats, or ``frame.writeStream.foreachBatch(...)``. The
runtime adds name, trigger and checkpoint and starts it.

Requirements for a connector: settings are a msgspec Struct that forbids unknown fields; ``check``
changes nothing outside and reports instead of raising; ``read`` returns the same records for the
same range of offsets; a batch id that is written twice appears once if the spec is *exactly
once*; no state is stored outside ``context.state_dir``.
"""

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from mainstem.model.errors import MainstemError
from mainstem.pipelines.connector.spec import Spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ConfigT_contra = TypeVar("ConfigT_contra", contravariant=True)


class FindingSeverity(enum.StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Struct, frozen=True):
    """One result of a check; ``retriable`` when it may resolve itself after some time."""

    severity: FindingSeverity
    message: str
    remedy: str = ""
    retriable: bool = False


class Column(Struct, frozen=True):
    """A column of something that can be read; ``type`` is the external system's name."""

    name: str
    type: str
    nullable: bool = True


class Discovered(Struct, frozen=True, kw_only=True):
    """One thing that a source could read: a table, a file, a queue.

    ``config`` contains the settings that would select it.
    """

    name: str
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()
    rows_estimate: int | None = None
    config: dict[str, Any] = {}


class TableRoute(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sends the rows of one table to a separate topic."""

    table: str
    topic: str
    schema: str | None = None


class DeadLetters(Protocol):
    """Takes records that a sink can never deliver."""

    def send(self, refused: "DataFrame") -> None:
        """Write refused records durably: wire columns and ``error string``."""


class ConnectorContext(Struct, frozen=True, kw_only=True):
    """The context of a connector: its pipeline, its folder and its limits.

    Args:
        pipeline: the name of the pipeline.
        state_dir: the connector's folder, which survives restarts; it may not exist yet.
        streaming: False requests the current content from a source as a batch frame.
        rows_per_batch_max: the maximum number of rows of a micro-batch; None: up to the source.
        rehearsal: nothing may change outside: no slot is created, no message is taken.
        topic: the topic of records that have no topic themselves.
        tables: topics of individual tables.
        dead_letters: where a sink sends records that it can never deliver; None: it fails instead.
        plain_fields: transforms will parse the values; a source that can do so may parse them.
        output_mode: Spark's output mode for a sink of an aggregate; set on the writer by the
            runtime.
    """

    pipeline: str
    state_dir: Path
    streaming: bool = True
    rows_per_batch_max: int | None = None
    rehearsal: bool = False
    topic: str | None = None
    tables: tuple[TableRoute, ...] = ()
    dead_letters: DeadLetters | None = None
    plain_fields: bool = False
    output_mode: str = "append"


class Source(Protocol[ConfigT_contra]):
    """Reads records from an external system."""

    def spec(self) -> Spec:
        """The metadata of this source."""

    def check(self, config: ConfigT_contra) -> list[Finding]:
        """Whether the external system answers and grants the necessary rights."""

    def discover(self, config: ConfigT_contra) -> list[Discovered]:
        """What could be read."""

    def read(
        self, spark: "SparkSession", config: ConfigT_contra, context: ConnectorContext
    ) -> "DataFrame":
        """The records, as a streaming frame unless ``context.streaming`` is false."""


class Sink(Protocol[ConfigT_contra]):
    """Writes records to an external system."""

    def spec(self) -> Spec:
        """The metadata of this sink."""

    def check(self, config: ConfigT_contra) -> list[Finding]:
        """Whether the external system answers and grants the necessary rights."""

    def write(
        self, frame: "DataFrame", config: ConfigT_contra, context: ConnectorContext
    ) -> "DataStreamWriter":
        """A writer of the frame, not started."""


def failed(message: str, remedy: str = "", *, retriable: bool = False) -> Finding:
    """A finding that prevents a pipeline from running."""
    return Finding(FindingSeverity.ERROR, message, remedy, retriable)


def refused(error: MainstemError) -> Finding:
    """The finding for an error of the external system or of a library."""
    return failed(error.cause, error.remedy, retriable=error.retriable)


def warned(message: str, remedy: str = "") -> Finding:
    """A warning."""
    return Finding(FindingSeverity.WARNING, message, remedy)


def passed(message: str) -> Finding:
    """A finding without problems."""
    return Finding(FindingSeverity.OK, message)
