"""The shapes of sources and sinks: what a connector offers and what it is given.

    source:  spec -> check -> discover -> read(spark, config, place)  -> a streaming DataFrame
    sink:    spec -> check -> write(frame, config, place)             -> a DataStreamWriter

A source gives a *wire frame* (``connector.wire``) or a frame of any columns, which then become one
JSON object per row. A sink is given a wire frame and returns a writer that is not started: of a
Python data source, of one of Spark's formats, or ``frame.writeStream.foreachBatch(...)``. The
runtime adds name, trigger and checkpoint and starts it.

Promises a connector makes: settings are a msgspec Struct that forbids unknown fields; ``check``
changes nothing outside and reports instead of raising; what ``read`` gives for a range of offsets
is the same however often it is asked; a batch id that is written twice appears once where the spec
says *exactly once*; nothing is kept outside ``place.state_dir``.
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


class Severity(enum.StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Struct, frozen=True):
    """One thing that a check found; ``retriable`` when waiting may mend it."""

    severity: Severity
    message: str
    remedy: str = ""
    retriable: bool = False


class Column(Struct, frozen=True):
    """A column of something that can be read; ``type`` is the other system's word."""

    name: str
    type: str
    nullable: bool = True


class Discovered(Struct, frozen=True, kw_only=True):
    """One thing that a source could read: a table, a file, a queue.

    ``config`` holds the settings that would select it.
    """

    name: str
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()
    rows_estimate: int | None = None
    config: dict[str, Any] = {}


class TableRoute(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sends the rows of one table to a topic of its own."""

    table: str
    topic: str
    schema: str | None = None


class DeadLetters(Protocol):
    """Takes records that a sink found it can never deliver."""

    def send(self, refused: "DataFrame") -> None:
        """Write refused records: wire columns and ``error string``. Returns when they are safe."""


class Place(Struct, frozen=True, kw_only=True):
    """Where a connector stands: its pipeline, its folder and the bounds it has to keep.

    Args:
        pipeline: the name of the pipeline.
        state_dir: a folder of the connector's own that survives restarts; it may not exist yet.
        streaming: False asks a source for what is there now as a batch frame.
        rows_per_batch_max: how many rows one micro-batch may hold; None leaves it to the source.
        rehearsal: nothing may change outside: no slot is created, no message is taken.
        topic: where records go that carry no topic of their own.
        tables: topics of single tables.
        dead_letters: where a sink sends what it can never deliver; None: it fails instead.
        plain_fields: steps will look into the values; a source that has the means may parse them.
        output_mode: what Spark hands a sink of an aggregate; the runtime sets it on the writer.
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
    """Brings records in."""

    def spec(self) -> Spec:
        """What this source is."""

    def check(self, config: ConfigT_contra) -> list[Finding]:
        """Whether the other side answers and lets us do what we need."""

    def discover(self, config: ConfigT_contra) -> list[Discovered]:
        """What could be read."""

    def read(self, spark: "SparkSession", config: ConfigT_contra, place: Place) -> "DataFrame":
        """The records, as a streaming frame unless the place asks for a batch."""


class Sink(Protocol[ConfigT_contra]):
    """Takes records out."""

    def spec(self) -> Spec:
        """What this sink is."""

    def check(self, config: ConfigT_contra) -> list[Finding]:
        """Whether the other side answers and lets us do what we need."""

    def write(self, frame: "DataFrame", config: ConfigT_contra, place: Place) -> "DataStreamWriter":
        """A writer of the frame, not started."""


def failed(message: str, remedy: str = "", *, retriable: bool = False) -> Finding:
    """A finding that keeps a pipeline from running."""
    return Finding(Severity.ERROR, message, remedy, retriable)


def refused(error: MainstemError) -> Finding:
    """The finding that the other side, or a library, has refused something."""
    return failed(error.cause, error.remedy, retriable=error.retriable)


def warned(message: str, remedy: str = "") -> Finding:
    """A finding that somebody should look at."""
    return Finding(Severity.WARNING, message, remedy)


def passed(message: str) -> Finding:
    """A finding that all is well."""
    return Finding(Severity.OK, message)
