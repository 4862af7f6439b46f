"""File formats: writes Arrow batches to files, and reads files as JSON values.

    parquet  columns                      csv   columns, a header first
    json     one JSON value per line      avro  object container files, columns
    text     one value per line, unmodified

Guarantees: a file is written and read in pieces, whatever its size; a read error names the file.
"""

import csv
import gzip
import io
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final, Literal, Protocol

import msgspec
import pyarrow as pa
import zstandard

from mainstem.model.errors import ErrorCode, InvalidRequest

Format = Literal["parquet", "json", "csv", "avro", "text"]
Compression = Literal["none", "gzip", "zstd", "snappy", "lz4"]

LINES: Final = frozenset({"json", "text"})
"""Formats that are written from one column of whole lines."""

COMPRESSIONS: Final[dict[Format, frozenset[Compression]]] = {
    "parquet": frozenset({"none", "gzip", "zstd", "snappy", "lz4"}),
    "json": frozenset({"none", "gzip", "zstd"}),
    "csv": frozenset({"none", "gzip", "zstd"}),
    "text": frozenset({"none", "gzip", "zstd"}),
    "avro": frozenset({"none", "gzip", "zstd", "snappy"}),
}
_ENDINGS: Final = {"gzip": ".gz", "zstd": ".zst"}
_AVRO_CODECS: Final = {"none": "null", "gzip": "deflate", "zstd": "zstandard", "snappy": "snappy"}
_ROWS: Final = 8_192


class Encoder(Protocol):
    """Writes batches to one file."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""

    def close(self) -> None:
        """Writes the end of the file."""


def ending(format_: Format, compression: Compression) -> str:
    """The suffix of file names."""
    packed = _ENDINGS.get(compression, "") if format_ in {"json", "csv", "text"} else ""
    return f".{format_ if format_ != 'text' else 'txt'}{packed}"


def encoder(
    format_: Format, compression: Compression, file: IO[bytes], schema: pa.Schema
) -> Encoder:
    """An encoder of rows of ``schema`` into ``file``, which stays open."""
    if format_ == "parquet":
        return _Parquet(file, schema, compression)
    if format_ == "avro":
        return _Avro(file, schema, compression)
    packed = _packed(file, compression)
    return _Csv(packed, schema) if format_ == "csv" else _Lines(packed)


def _packed(file: IO[bytes], compression: Compression) -> Any:
    """A file that compresses what is written to it; closing it leaves ``file`` open."""
    if compression == "gzip":
        return gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0)
    if compression == "zstd":
        return zstandard.ZstdCompressor().stream_writer(file, closefd=False)
    return _Unpacked(file)


class _Unpacked(io.RawIOBase):
    """The file itself, which stays open."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._file.write(data)


class _Parquet:
    def __init__(self, file: IO[bytes], schema: pa.Schema, compression: str) -> None:
        from pyarrow import parquet

        self._writer = parquet.ParquetWriter(file, schema, compression=compression)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _Csv:
    def __init__(self, file: Any, schema: pa.Schema) -> None:
        from pyarrow import csv as arrow_csv

        self._file = file
        self._writer = arrow_csv.CSVWriter(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()
        self._file.close()


class _Lines:
    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        lines = batch.column(0).to_pylist()
        if lines:
            self._file.write("\n".join(lines).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


class _Avro:
    """Writes Avro block by block with fastavro's writer class."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, compression: str) -> None:
        from fastavro.write import Writer

        parsed = avro_schema(schema)
        self._writer: Any = Writer(file, parsed, codec=_AVRO_CODECS[compression])

    def write(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            self._writer.write(row)

    def close(self) -> None:
        self._writer.flush()


def avro_schema(schema: pa.Schema) -> dict[str, Any]:
    """The Avro schema of Arrow columns, all of them optional."""
    return _record(list(schema), "record")


def _record(fields: Iterable[Any], name: str) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {
                "name": field.name,
                "type": ["null", _avro(field.type, f"{name}_{field.name}")],
                "default": None,
            }
            for field in fields
        ],
    }


def _avro(kind: pa.DataType, name: str) -> Any:
    types = pa.types
    if types.is_struct(kind):
        return _record([kind.field(index) for index in range(kind.num_fields)], name)
    if types.is_list(kind):
        return {"type": "array", "items": ["null", _avro(kind.value_type, name)]}
    if types.is_map(kind):
        return {"type": "map", "values": ["null", _avro(kind.item_type, name)]}
    if types.is_decimal(kind):
        logical = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", **logical}
    for is_kind, found in _AVRO_TYPES:
        if is_kind(kind):
            return found
    raise InvalidRequest(
        ErrorCode.INVALID_CONFIG, f"Avro has no type for {kind}", remedy="cast the column to string"
    )


_AVRO_TYPES: Final[list[tuple[Any, Any]]] = [
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int64, "long"),
    (pa.types.is_integer, "int"),
    (pa.types.is_float32, "float"),
    (pa.types.is_floating, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_date, {"type": "int", "logicalType": "date"}),
    (pa.types.is_timestamp, {"type": "long", "logicalType": "timestamp-micros"}),
]


def json_values(format_: Format, file: IO[bytes], path: str) -> Iterator[list[bytes]]:
    """The values of a file, in pieces.

    Raises:
        InvalidRequest: the file does not have that format.
    """
    try:
        yield from _pieces(_values(format_, file, path))
    except (pa.ArrowException, csv.Error, UnicodeDecodeError, ValueError, EOFError) as error:
        raise InvalidRequest(
            ErrorCode.INVALID_RECORD,
            f"not a complete {format_} file: {' '.join(str(error).split())[:300]}",
            subject=path,
            remedy="repair or remove the file, then restart the pipeline",
        ) from error


def _values(format_: Format, file: IO[bytes], path: str) -> Iterator[bytes]:
    encode = msgspec.json.Encoder(enc_hook=str).encode
    if format_ == "parquet":
        from pyarrow import parquet

        for batch in parquet.ParquetFile(file).iter_batches(_ROWS):
            yield from map(encode, batch.to_pylist())
    elif format_ == "avro":
        import fastavro

        yield from map(encode, fastavro.reader(file))
    elif format_ == "csv":
        text = io.TextIOWrapper(_unpacked(file, path), encoding="utf-8-sig", newline="")
        for row in csv.DictReader(text, strict=True):
            if None in row or None in row.values():
                raise ValueError(f"row {list(row.values())!r} has a different number of columns")
            yield encode({name: value or None for name, value in row.items()})
    else:
        for line in _unpacked(file, path):
            if value := line.rstrip(b"\r\n"):
                yield value


def _unpacked(file: IO[bytes], path: str) -> io.BufferedReader:
    packed = {".gz": "gzip", ".zst": "zstd", ".lz4": "lz4", ".bz2": "bz2"}
    for end, codec in packed.items():
        if path.endswith(end):
            return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), codec))
    return io.BufferedReader(file)  # type: ignore[arg-type]


def _pieces(values: Iterator[bytes]) -> Iterator[list[bytes]]:
    piece: list[bytes] = []
    for value in values:
        piece.append(value)
        if len(piece) == _ROWS:
            yield piece
            piece = []
    if piece:
        yield piece
