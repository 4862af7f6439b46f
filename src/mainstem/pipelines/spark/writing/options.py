"""The options of ``format("mainstem")`` for writing. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from mainstem.client.settings import ProducerSettings
from mainstem.model.limits import MIB
from mainstem.pipelines.spark.reading.options import check_names, flag, number, refusal, servers_of

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"
BATCH_BYTES: Final = 900_000  # below the default maximum of topics
TRANSACTION_TIMEOUT_MS: Final = 900_000  # the default maximum of nodes

_NAMES: Final = {
    "kafka.bootstrap.servers",
    "topic",
    "delivery",
    "sinkname",
    "ledger.query",
    "ledger.batch",
    "transactiontimeoutms",
    "kafka.client.id",
    "kafka.compression.type",
    "kafka.batch.size",
    "kafka.delivery.timeout.ms",
}
# Options that Spark itself, or Spark's Kafka sink, accepts.
_WITHOUT_EFFECT: Final = {"checkpointlocation", "queryname", "path", "includeheaders", "kafka.acks"}


class WriteOptions(NamedTuple):
    """Where to write and how.

    ``ledger_query`` and ``ledger_batch`` identify a batch that is written once however often it is
    tried; streams have their own.
    """

    servers: str
    topic: str | None = None
    is_exactly_once: bool = True
    sink: str = "default"
    ledger_query: str | None = None
    ledger_batch: int | None = None
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    batch_bytes: int = BATCH_BYTES
    producer: ProducerSettings = ProducerSettings()


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Parse the options that Spark passes.

    Raises:
        InvalidRequest: an option is unknown, missing or invalid.
    """
    options = {name.lower(): value for name, value in given.items()}
    check_names(options, _NAMES | _WITHOUT_EFFECT)
    flag(options, "includeheaders", default=True)
    delivery = options.get("delivery", EXACTLY_ONCE)
    if delivery not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise refusal("delivery", f"{delivery!r}", f"use {EXACTLY_ONCE} or {AT_LEAST_ONCE}")
    query, batch = options.get("ledger.query"), options.get("ledger.batch")
    if (query is None) != (batch is None):
        raise refusal(
            "ledger.query", "must be set together with ledger.batch", "set both, or neither"
        )
    sink = options.get("sinkname", "default")
    for name, text in (("sinkName", sink), ("ledger.query", query or "")):
        if "/" in text:
            raise refusal(
                name, f"{text!r} contains a slash", "remove it: it separates parts of ids"
            )
    if batch is not None and not batch.isdigit():
        raise refusal("ledger.batch", f"{batch!r}", "use the number of the batch")
    return WriteOptions(
        servers=servers_of(options),
        topic=options.get("topic"),
        is_exactly_once=delivery == EXACTLY_ONCE,
        sink=sink,
        ledger_query=query,
        ledger_batch=None if batch is None else int(batch),
        transaction_timeout_ms=number(options, "transactiontimeoutms") or TRANSACTION_TIMEOUT_MS,
        batch_bytes=number(options, "kafka.batch.size") or BATCH_BYTES,
        producer=ProducerSettings(
            compression=options.get("kafka.compression.type", "none"),
            request_bytes_max=8 * MIB,
            delivery_timeout_ms=number(options, "kafka.delivery.timeout.ms") or 120_000,
        ),
    )
