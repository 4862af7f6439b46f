"""Change events in Avro: the schemas of a table's events, and conversion of JSON records. Pure.

Keys and values are in single-object encoding. A reader looks up the writer's schema by its
fingerprint in the ``schema_topic``: a record there has the fingerprint in hexadecimal digits as its
key and the schema as its value. Every batch writes the schemas that it uses before it uses them, so
a repeated batch is identical and no state is kept; the topic should be compacted.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from mainstem.pipelines.cdc.avro.schema import AvroEncoder, TableSchemas
from mainstem.pipelines.cdc.avro.value_types import (
    INT,
    LONG,
    NAME,
    STRING,
    AvroType,
    array,
    optional,
    record,
)
from mainstem.pipelines.cdc.avro.value_types import safe_name as _safe
from mainstem.pipelines.cdc.envelope import ChangeRecord, EventField
from mainstem.pipelines.cdc.settings import CdcConfig

_NAMESPACE: Final = "mainstem.cdc"
_MAYBE_LONG: Final = optional(LONG)
_MAYBE_STRING: Final = optional(STRING)
_MAYBE_NAME: Final = optional(NAME)
_SOURCE_HEAD: Final = (
    ("version", NAME),
    ("connector", NAME),
    ("name", NAME),
    ("ts_ms", LONG),
    ("snapshot", _MAYBE_NAME),
    ("db", NAME),
    ("sequence", _MAYBE_STRING),
    ("ts_us", LONG),
    ("ts_ns", LONG),
)
POSTGRES_SOURCE: Final = record(
    f"{_NAMESPACE}.PostgresSource",
    (
        *_SOURCE_HEAD,
        ("schema", NAME),
        ("table", NAME),
        ("txId", _MAYBE_LONG),
        ("lsn", _MAYBE_LONG),
        ("xmin", _MAYBE_LONG),
        ("origin", _MAYBE_STRING),
        ("origin_lsn", _MAYBE_LONG),
    ),
)
MYSQL_SOURCE: Final = record(
    f"{_NAMESPACE}.MysqlSource",
    (
        *_SOURCE_HEAD,
        ("table", _MAYBE_NAME),
        ("server_id", LONG),
        ("gtid", _MAYBE_NAME),
        ("file", NAME),
        ("pos", LONG),
        ("row", INT),
        ("thread", _MAYBE_LONG),
        ("query", _MAYBE_STRING),
    ),
)
_ORDER: Final = record(
    f"{_NAMESPACE}.Order",
    (("id", STRING), ("total_order", LONG), ("data_collection_order", LONG)),
)
_COUNT: Final = record(f"{_NAMESPACE}.Count", (("data_collection", STRING), ("event_count", LONG)))


def table_schemas(
    namespace: Sequence[str], row: Sequence[EventField], key: Sequence[EventField], source: AvroType
) -> TableSchemas:
    """The schemas of a table's keys and events; ``namespace`` names the source and the table."""
    place = ".".join(_safe(part) for part in namespace)
    value_schema = optional(record(f"{place}.Value", _kinds(row)))
    envelope = record(
        f"{place}.Envelope",
        (
            ("before", value_schema),
            ("after", value_schema),
            ("source", source),
            ("transaction", optional(_ORDER)),
            ("op", NAME),
            ("ts_ms", _MAYBE_LONG),
            ("ts_us", _MAYBE_LONG),
            ("ts_ns", _MAYBE_LONG),
        ),
    )
    keyed = AvroEncoder(record(f"{place}.Key", _kinds(key))) if key else None
    return TableSchemas(keyed, AvroEncoder(envelope))


def _kinds(fields: Sequence[EventField]) -> list[tuple[str, AvroType]]:
    found = []
    for field in fields:
        assert field.kind is not None, "made for Avro"
        found.append((field.name, field.kind))
    return found


_MESSAGE: Final = record(f"{_NAMESPACE}.Message", (("prefix", STRING), ("content", STRING)))


@cache
def _beside(which: str, source: str) -> TableSchemas:
    """The schemas of records that belong to no table."""
    of = POSTGRES_SOURCE if source == "postgresql" else MYSQL_SOURCE
    key, value = {
        "transaction": (
            (("id", STRING),),
            (
                ("status", STRING),
                ("id", STRING),
                ("event_count", _MAYBE_LONG),
                ("data_collections", optional(array(_COUNT))),
                ("ts_ms", LONG),
            ),
        ),
        "message": (
            (("prefix", STRING),),
            (
                ("op", NAME),
                ("ts_ms", LONG),
                ("source", of),
                ("transaction", optional(_ORDER)),
                ("message", _MESSAGE),
            ),
        ),
        "schema_change": (
            (("databaseName", STRING),),
            (
                ("source", of),
                ("ts_ms", LONG),
                ("databaseName", STRING),
                ("schemaName", _MAYBE_STRING),
                ("ddl", STRING),
            ),
        ),
        "heartbeat": ((("serverName", STRING),), (("ts_ms", LONG),)),
    }[which]
    place = f"{_NAMESPACE}.{which}"
    return TableSchemas(
        AvroEncoder(record(f"{place}.Key", key)), AvroEncoder(record(f"{place}.Value", value))
    )


def _which(value: dict[str, Any]) -> TableSchemas:
    if "status" in value:
        return _beside("transaction", "")
    source = str(value.get("source", {}).get("connector", ""))
    if "message" in value:
        return _beside("message", source)
    return _beside("schema_change", source) if "ddl" in value else _beside("heartbeat", "")


def in_format(records: Iterable[ChangeRecord], config: CdcConfig) -> Iterable[ChangeRecord]:
    """Records in the configured format: unchanged JSON, or Avro preceded by the schemas."""
    return records if config.format == "json" else _in_avro(records, schema_topic(config))


def schema_topic(config: CdcConfig) -> str:
    """The topic of Avro schemas."""
    return config.schema_topic.format(database=config.database, name=config.source_name)


def _in_avro(records: Iterable[ChangeRecord], topic: str) -> Iterator[ChangeRecord]:
    parse = msgspec.json.decode
    sent: set[bytes] = set()
    for each in records:
        value = None if each.value is None else parse(each.value)
        schemas = each.schemas or _which(value or {})
        key, headers = None, each.headers
        if schemas.key is not None:
            write = schemas.key.write
            key = None if each.key is None else write(parse(each.key))
            headers = headers and tuple((name, write(parse(other))) for name, other in headers)
        for coded in (schemas.key, schemas.value):
            if coded is not None and coded.fingerprint not in sent:
                sent.add(coded.fingerprint)
                yield _schema_record(coded, topic, each.at_us)
        coded_value = None if value is None else schemas.value.write(value)
        yield ChangeRecord(each.topic, key, coded_value, each.at_us, headers)


def _schema_record(coded: AvroEncoder, topic: str, at_us: int) -> ChangeRecord:
    """The record of a schema; its key is the fingerprint in hexadecimal."""
    key = coded.fingerprint[::-1].hex().encode()
    return ChangeRecord(topic, key, msgspec.json.encode(coded.schema), at_us)
