"""The ``stdout`` sink: prints records, for developing a pipeline."""

import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from mainstem.pipelines.connector.shapes import ConnectorContext, Finding, passed
from mainstem.pipelines.connector.spec import Category, DeliveryGuarantee, Spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class StdoutConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The format of printed records."""

    format: Annotated[
        Literal["json", "value"],
        Meta(description="One JSON object per record, or only the value."),
    ] = "json"
    prefix: Annotated[str, Meta(description="Prefix of every line.")] = ""


class StdoutSink:
    """Prints every record on a separate line."""

    def spec(self) -> Spec:
        """The metadata of this sink."""
        return Spec(
            name="stdout",
            kind="sink",
            title="Standard output",
            category=Category.TESTING,
            config=StdoutConfig,
            delivery=DeliveryGuarantee.AT_LEAST_ONCE,
        )

    def check(self, config: StdoutConfig) -> list[Finding]:
        """Always successful."""
        del config
        return [passed("prints to standard output")]

    def write(
        self, frame: "DataFrame", config: StdoutConfig, context: ConnectorContext
    ) -> "DataStreamWriter":
        """A writer that prints batch by batch."""
        del context

        def show(batch: "DataFrame", batch_id: int) -> None:
            del batch_id
            # Partition by partition: the driver never has more than one of them in memory.
            rows = (row.asDict() for row in batch.toLocalIterator())
            for line in lines(rows, config):
                sys.stdout.write(line + "\n")
            sys.stdout.flush()

        return frame.writeStream.foreachBatch(show)


def lines(rows: Iterable[Mapping[str, Any]], config: StdoutConfig) -> Iterable[str]:
    """The printed lines of records."""
    for row in rows:
        text = _text(row.get("value")) if config.format == "value" else as_json(row)
        yield config.prefix + text


def as_json(row: Mapping[str, Any]) -> str:
    """A record as one JSON object; bytes that are not UTF-8 are written in base64."""
    shown: dict[str, object] = {}
    for name, value in row.items():
        if isinstance(value, bytes | bytearray):
            _show_bytes(shown, name, bytes(value))
        elif name == "headers" and value is not None:
            shown[name] = [_header(each) for each in value]
        elif value is not None:
            shown[name] = value
        elif name == "value":
            shown[name] = None
    return msgspec.json.encode(shown, enc_hook=str).decode()


def _header(header: Any) -> dict[str, object]:
    shown: dict[str, object] = {"key": header["key"]}
    if header["value"] is None:
        shown["value"] = None
    else:
        _show_bytes(shown, "value", bytes(header["value"]))
    return shown


def _show_bytes(shown: dict[str, object], name: str, value: bytes) -> None:
    try:
        shown[name] = value.decode()
    except UnicodeDecodeError:
        shown[f"{name}_base64"] = b64encode(value).decode()


def _text(value: bytes | None) -> str:
    return "" if value is None else bytes(value).decode(errors="backslashreplace")


SINK = StdoutSink()
