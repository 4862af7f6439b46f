"""The Avro types of columns, by the types of the databases and the chosen modes. Pure.

They correspond to the output of the JSON converters. Dates and times are numbers with a semantic
name, because their extreme values exceed the range that readers support for Avro's logical types.
"""

from typing import Final

from mainstem.pipelines.cdc.avro.value_types import (
    BOOLEAN,
    DECIMAL_DIGITS_MAX,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    AvroType,
    annotated,
    array,
    binary,
    column,
    decimal,
    optional,
    record,
)
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql.values import ColumnType
from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres.values import TypeInfo, has_millis, numeric_digits

_BASE64: Final = binary("base64")
_VARIABLE: Final = record("mainstem.cdc.VariableDecimal", (("scale", INT), ("value", _BASE64)))
_SHAPE: Final = (("wkb", _BASE64), ("srid", optional(INT)))
_GEOMETRY: Final = record("mainstem.cdc.Geometry", _SHAPE)
_POINT: Final = record(
    "mainstem.cdc.Point", (("x", optional(DOUBLE)), ("y", optional(DOUBLE)), *_SHAPE)
)
_DATE: Final = annotated(INT, "io.debezium.time.Date")
MASKED: Final = optional(STRING)
_MONEY_DIGITS: Final = (19, 2)
_PLAIN_POSTGRES: Final = {
    "int2": INT,
    "int4": INT,
    "int8": LONG,
    "oid": LONG,
    "float4": FLOAT,
    "float8": DOUBLE,
    "bool": BOOLEAN,
    "varbit": _BASE64,
    "point": _POINT,
}
# Types of a fixed width: the log always contains their values, so no placeholder is needed.
_FIXED_POSTGRES: Final = frozenset(
    {
        "int2",
        "int4",
        "int8",
        "oid",
        "float4",
        "float8",
        "bool",
        "date",
        "time",
        "timestamp",
        "money",
    }
    | {"point"}
)


def postgres_column(info: TypeInfo, config: PostgresCdcConfig) -> AvroType:
    """The Avro type of a PostgreSQL column."""
    return column(
        _postgres(info, config),
        placeholder=config.placeholder,
        may_be_text=info.element is not None or info.name not in _FIXED_POSTGRES,
    )


def _postgres(info: TypeInfo, config: PostgresCdcConfig) -> AvroType:
    if info.element is not None:
        return array(_postgres(info.element, config))
    name = info.name
    plain = {
        **_PLAIN_POSTGRES,
        "bytea": binary(config.binary_mode),
        "bit": BOOLEAN if info.modifier in {1, -1} else _BASE64,
    }
    if name in plain:
        return plain[name]
    if name in {"numeric", "money"}:
        return _postgres_decimal(info, config)
    if name == "interval" and config.interval_mode == "numeric":
        return annotated(LONG, "io.debezium.time.MicroDuration")
    return _postgres_moment(info, config)


def _postgres_decimal(info: TypeInfo, config: PostgresCdcConfig) -> AvroType:
    if config.decimal_mode != "precise":
        return DOUBLE if config.decimal_mode == "double" else STRING
    if info.name == "money":
        return decimal(*_MONEY_DIGITS)
    precision, scale = numeric_digits(info)
    return _VARIABLE if scale is None else _decimal(precision, scale)


def _decimal(precision: int, scale: int) -> AvroType:
    """Avro's decimal where possible, else bytes only; the scale is that of the column."""
    fits = 0 < precision <= DECIMAL_DIGITS_MAX and 0 <= scale <= precision
    return decimal(precision, scale) if fits else _BASE64


def _postgres_moment(info: TypeInfo, config: PostgresCdcConfig) -> AvroType:
    if info.name not in {"date", "time", "timestamp"} or config.time_mode == "isostring":
        return STRING
    if info.name == "date":
        return _DATE
    in_ms = has_millis(info, config)
    if info.name == "time":
        hint = "Time" if in_ms else "MicroTime"
        return annotated(INT if in_ms else LONG, f"io.debezium.time.{hint}")
    hint = "Timestamp" if in_ms else "MicroTimestamp"
    return annotated(LONG, f"io.debezium.time.{hint}")


def mysql_column(of: ColumnType, config: MysqlCdcConfig) -> AvroType:
    """The Avro type of a MySQL or MariaDB column."""
    return column(_mysql(of, config), placeholder=config.placeholder, may_be_text=False)


def _mysql(of: ColumnType, config: MysqlCdcConfig) -> AvroType:
    plain = {
        "int": LONG,
        "float": FLOAT,
        "double": DOUBLE,
        "bytes": binary(config.binary_mode),
        "bit": BOOLEAN if of.digits == 1 else _BASE64,
        "geometry": _GEOMETRY,
        "point": _POINT,
    }
    if of.word in plain:
        return plain[of.word]
    if of.word == "decimal" and config.decimal_mode != "string":
        return DOUBLE if config.decimal_mode == "double" else _decimal(of.precision, of.digits)
    if of.word in {"date", "time", "datetime"} and config.time_mode != "isostring":
        return _mysql_moment(of, config)
    return STRING


def _mysql_moment(of: ColumnType, config: MysqlCdcConfig) -> AvroType:
    if of.word == "date":
        return _DATE
    in_ms = config.time_mode == "connect"
    if of.word == "time":
        return annotated(LONG, f"io.debezium.time.{'Time' if in_ms else 'MicroTime'}")
    in_ms = in_ms or of.digits <= 3
    return annotated(LONG, f"io.debezium.time.{'Timestamp' if in_ms else 'MicroTimestamp'}")
