"""Dead letters: records that cannot be processed, stored with the reason so that none is lost.

    {"original_topic", "connector_name", "payload_b64", "error", "retry_count", "timestamp"}

``timestamp`` is in milliseconds. The key stays the record's key; its headers are kept, and
``mainstem.pipeline`` and ``mainstem.step`` are added. Without a dead-letter topic a bad record
stops its pipeline: dropping it silently would lose it.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mainstem.pipelines.connector.wire import WIRE_TYPES, as_wire

ERROR, STEP = "error", "step"
ERROR_LENGTH_MAX = 2_000
_KEEP_NULLS = {"ignoreNullFields": "false"}


def envelopes(dead: DataFrame, *, topic: str, pipeline: str) -> DataFrame:
    """Refused records (wire columns, ``error``, optionally ``step``) as records of ``topic``."""
    reason, step = _reasons(dead)
    wire = dead.select(
        *(
            F.col(name).cast(kind).alias(name)
            for name, kind in WIRE_TYPES.items()
            if name in dead.columns
        ),
        reason.alias(ERROR),
        step.alias(STEP),
    )
    return wire.select(*_letter(wire, F.lit(topic), pipeline))


def split(
    marked: DataFrame, *, dead_letter_topic: str | None, pipeline: str, topic: str | None
) -> DataFrame:
    """Good records and dead letters in one frame, made in one pass.

    ``marked`` has wire columns, ``error`` and ``step``; the record is good if ``error`` is null.
    Without a dead-letter topic the first bad record raises.
    """
    good = as_wire(marked.drop(ERROR, STEP), topic=topic).columns
    full = marked.select(*_completed(marked, topic), F.col(ERROR), F.col(STEP))
    bad = F.col(ERROR).isNotNull()
    if dead_letter_topic is None:
        raised = F.raise_error(_sentence(pipeline)).cast("binary")
        value = F.when(bad, raised).otherwise(F.col("value")).alias("value")
        return full.select(*(value if name == "value" else F.col(name) for name in good))
    letter = dict(zip(WIRE_TYPES, _letter(full, F.lit(dead_letter_topic), pipeline), strict=True))
    return full.select(
        *(F.when(bad, letter[name]).otherwise(F.col(name)).alias(name) for name in good)
    )


def _completed(frame: DataFrame, topic: str | None) -> list[Column]:
    present = set(frame.columns)
    columns = []
    for name, kind in WIRE_TYPES.items():
        column = (F.col(name) if name in present else F.lit(None)).cast(kind)
        if name == "topic" and topic is not None:
            column = F.coalesce(column, F.lit(topic))
        columns.append(column.alias(name))
    return columns


def _letter(frame: DataFrame, topic: Column, pipeline: str) -> list[Column]:
    """The wire columns of a dead letter, in their order."""
    present = set(frame.columns)

    def given(name: str) -> Column:
        return F.col(name) if name in present else F.lit(None).cast(WIRE_TYPES[name])

    envelope = F.struct(
        given("topic").alias("original_topic"),
        F.lit(pipeline).alias("connector_name"),
        # Spark wraps base64 into lines, which must not occur within JSON.
        F.translate(F.base64(given("value")), "\r\n", "").alias("payload_b64"),
        F.substring(F.col(ERROR), 1, ERROR_LENGTH_MAX).alias("error"),
        F.lit(0).alias("retry_count"),
        F.unix_millis(F.current_timestamp()).alias("timestamp"),
    )

    def header(name: str, value: Column) -> Column:
        return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))

    added = F.array(
        header("mainstem.pipeline", F.lit(pipeline)),
        header("mainstem.step", F.coalesce(F.col(STEP), F.lit("sink"))),
    )
    none = F.array().cast(WIRE_TYPES["headers"])
    columns = {
        "topic": topic,
        "key": given("key"),
        "value": F.to_json(envelope, _KEEP_NULLS).cast("binary"),
        "headers": F.concat(F.coalesce(given("headers"), none), added),
        "partition": F.lit(None).cast("int"),
        "timestamp": given("timestamp"),
    }
    return [columns[name].cast(kind).alias(name) for name, kind in WIRE_TYPES.items()]


def _sentence(pipeline: str) -> Column:
    return F.concat(
        F.lit(f"{pipeline}: "),
        F.coalesce(F.col(STEP), F.lit("a step")),
        F.lit(" refused a record: "),
        F.col(ERROR),
        F.lit(" (set dead_letter_topic to store such records and continue)"),
    )


def _reasons(dead: DataFrame) -> tuple[Column, Column]:
    reason = F.coalesce(F.col(ERROR), F.lit("refused"))
    step = F.col(STEP) if STEP in dead.columns else F.lit(None)
    return reason, step.cast("string")
