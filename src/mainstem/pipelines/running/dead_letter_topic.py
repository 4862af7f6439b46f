"""Writes records that sinks can never deliver, each once, although batches are repeated.

A batch that is repeated after a crash refuses the same records again. Dead letters are therefore
written under the identity of the batch, in the ledger of the topic sink, and are recognised the
second time. A digest of the refused records is stored in the pipeline's folder first: if the
repeated batch refuses *other* records, because the external system has changed, they are written in
any case. Guarantee: no dead letter is lost; a duplicate differs from those of the first attempt.
"""

from pathlib import Path
from typing import Final

from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mainstem.model.versioned_json import FIRST
from mainstem.pipelines.connector.batches import BatchIdentity, current_batch
from mainstem.pipelines.connector.state_file import read_json, replace_json
from mainstem.pipelines.running.dead_letters import envelopes

FORMAT: Final = "mainstem"
FILE_NAME: Final = "refused.json"


class RefusedDigests(Struct, frozen=True):
    """The records that a batch has refused so far: a digest per call of its sink."""

    batch: str = ""
    digests: tuple[str, ...] = ()
    version: int = FIRST


class DeadLetterTopic:
    """The dead letters of one pipeline.

    Args:
        topic: the dead-letter topic.
        pipeline: the name of the pipeline.
        options: those of the topic sink.
        folder: where the pipeline stores the digests of refused records.
    """

    def __init__(self, topic: str, pipeline: str, options: dict[str, str], folder: Path) -> None:
        self._topic = topic
        self._pipeline = pipeline
        self._options = options
        self._folder = folder
        self._sent = RefusedDigests()  # refused by this attempt

    def send(self, refused: DataFrame) -> None:
        """Write records that a sink permanently refused: wire columns and ``error``."""
        letters = envelopes(refused, topic=self._topic, pipeline=self._pipeline)
        batch = current_batch(refused.sparkSession)
        ledger = {} if batch is None else self._once(refused, batch)
        options = {**self._options, **ledger}
        letters.write.format(FORMAT).options(**options).mode("append").save()

    def _once(self, refused: DataFrame, batch: BatchIdentity) -> dict[str, str]:
        """The options by which the topic sink recognises these records; none if they differ."""
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
    """The digests of the last batch.

    Raises:
        UnknownVersion: a later release wrote them, in a newer format.
    """
    noted = read_json(folder / FILE_NAME, RefusedDigests, "a list of refused records")
    return noted or RefusedDigests()


def write_refused_digests(folder: Path, noted: RefusedDigests) -> None:
    """Replace the digests and flush them to disk."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_json(folder / FILE_NAME, noted, durable=True)


def _digest(refused: DataFrame) -> str:
    """A digest of records and their errors that does not depend on their order."""
    parts = [name for name in ("topic", "key", "value", "error") if name in refused.columns]
    hashed = F.xxhash64(*parts).cast("decimal(38,0)")
    [row] = refused.agg(F.count(F.lit(1)).alias("rows"), F.sum(hashed).alias("sum")).collect()
    return f"{row.rows}:{row.sum}"
