"""Where sinks send what they can never deliver: each letter once, although batches are repeated.

A batch that is repeated after a crash refuses the same records again. Letters are therefore written
under the identity of the batch, in the ledger of the topic sink, and the second time is recognised.
What was refused is noted in the pipeline's folder first: should the repeated batch refuse *other*
records, because the other side has changed meanwhile, they are written in any case. Promise: no
letter is lost; one that is told twice differs from the batch's first attempt.
"""

from pathlib import Path
from typing import Final

from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mainstem.model.versioned_json import FIRST
from mainstem.pipelines.connector.batches import BatchIdentity, current_batch
from mainstem.pipelines.connector.state_file import read_json, replace_json
from mainstem.pipelines.running.dead_letters import envelopes

FORMAT: Final = "mainstem"
FILE_NAME: Final = "refused.json"


class RefusedDigests(Struct, frozen=True):
    """What a batch has refused so far: a digest for each time its sink sent letters."""

    batch: str = ""
    digests: tuple[str, ...] = ()
    version: int = FIRST


class DeadLetterTopic:
    """The dead letters of one pipeline.

    Args:
        topic: where they go.
        pipeline: whose they are.
        options: those of the topic sink.
        folder: where the pipeline remembers what it refused.
    """

    def __init__(self, topic: str, pipeline: str, options: dict[str, str], folder: Path) -> None:
        self._topic = topic
        self._pipeline = pipeline
        self._options = options
        self._folder = folder
        self._sent = RefusedDigests()  # by this attempt

    def send(self, refused: DataFrame) -> None:
        """Write what a sink refused for good: wire columns and ``error``."""
        letters = envelopes(refused, topic=self._topic, pipeline=self._pipeline)
        batch = current_batch(refused.sparkSession)
        ledger = {} if batch is None else self._once(refused, batch)
        options = {**self._options, **ledger}
        letters.write.format(FORMAT).options(**options).mode("append").save()

    def _once(self, refused: DataFrame, batch: BatchIdentity) -> dict[str, str]:
        """The options that let the topic sink recognise these letters; none if they are others."""
        digest = _digest(refused)
        if self._sent.batch != str(batch):
            self._sent = RefusedDigests(str(batch))
        number = len(self._sent.digests)
        self._sent = RefusedDigests(str(batch), (*self._sent.digests, digest))
        noted = read_refused_digests(self._folder)
        if noted.batch == str(batch) and number < len(noted.digests):
            if noted.digests[number] != digest:
                return {}
        else:
            write_refused_digests(self._folder, self._sent)
        return {
            "ledger.query": batch.query_id,
            "ledger.batch": str(batch.batch_id),
            "sinkName": f"dead-{number}",
        }


def read_refused_digests(folder: Path) -> RefusedDigests:
    """What the last batch has refused, as far as it came.

    Raises:
        UnknownVersion: a later release wrote it, in a form of its own.
    """
    noted = read_json(folder / FILE_NAME, RefusedDigests, "a list of refused records")
    return noted or RefusedDigests()


def write_refused_digests(folder: Path, noted: RefusedDigests) -> None:
    """Replace what was noted; on disk when this returns."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_json(folder / FILE_NAME, noted, durable=True)


def _digest(refused: DataFrame) -> str:
    """What was refused and why, whatever the order."""
    parts = [name for name in ("topic", "key", "value", "error") if name in refused.columns]
    hashed = F.xxhash64(*parts).cast("decimal(38,0)")
    [row] = refused.agg(F.count(F.lit(1)).alias("rows"), F.sum(hashed).alias("sum")).collect()
    return f"{row.rows}:{row.sum}"
