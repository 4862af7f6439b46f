"""``externalize_blob``: moves large values to an object store and replaces them by references.

The only step that runs Python: Spark has no expression that writes an object. Values are sent to
Python workers in Arrow batches, but only those that are large enough.

Guarantees: an object is named by its content, so a repeated batch writes the same objects; the
reference is emitted only after the object is stored; an error of the store fails the batch, which
is retried, so no record continues without its value.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import Meta, Struct, field
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from mainstem.pipelines.connector.spec import Secret
from mainstem.pipelines.transforms.fields import Change, edit, false, is_string, text, value_at
from mainstem.pipelines.transforms.predicate import StepProblem
from mainstem.pipelines.transforms.rows import BEFORE, FIELDS, Rows, StepContext, change_source
from mainstem.pipelines.transforms.step import Step, path_problems

if TYPE_CHECKING:
    from obstore.store import ObjectStore

Provider = Literal["s3", "gcs", "azure", "local"]
_SCHEMES: Final = {"s3": "s3://", "gcs": "gs://", "azure": "az://", "local": "file://"}
_LARGE_TYPE: Final = "array<struct<name:string,value:string,is_text:boolean>>"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


class BlobStoreLocation(Struct, frozen=True):
    """A location in an object store."""

    provider: Provider
    bucket: str
    prefix: str
    options: tuple[tuple[str, str], ...]
    is_base64: bool


class ExternalizeBlob(Step, frozen=True, kw_only=True):
    """Stores values of at least ``size_threshold`` bytes as objects and leaves references.

    ``fields`` lists the fields to check; by default all fields of the first level. ``bucket`` is
    the bucket, the container of ``azure`` or, for ``local``, a folder. ``options`` are those of the
    store (``region``, ``endpoint``, ``access_key_id`` ...); without credentials the usual
    environment variables are used. With ``encoding: base64`` texts are decoded first.
    """

    provider: Provider
    bucket: str
    prefix: str = ""
    fields: tuple[str, ...] = ()
    size_threshold: Annotated[int, Meta(ge=1)] = 10_240
    encoding: Literal["text", "base64"] = "text"
    options: dict[str, Secret] = field(default_factory=dict)

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        yield from path_problems("fields", self.fields, required=False)
        if not self.bucket:
            yield "bucket", "is empty", ""
        if self.provider == "local" and not Path(self.bucket).is_absolute():
            yield "bucket", "a folder must be an absolute path", ""

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Stores values and inserts references in both images."""
        place = BlobStoreLocation(
            self.provider,
            self.bucket.rstrip("/"),
            self.prefix.strip("/"),
            tuple(sorted(self.options.items())),
            self.encoding == "base64",
        )
        stored = _storing(place)
        table = F.coalesce(change_source("table"), F.col("topic"), F.lit("unnamed"))
        for image in (FIELDS, BEFORE):
            large = F.when(turn.and_(F.col(image).isNotNull()), self._large(F.col(image)))
            references = stored(table, F.coalesce(large, F.array().cast(_LARGE_TYPE)))
            rows = rows.beside({_REFERENCES: references})
            here = StepContext(turn.label, F.coalesce(F.size(_REFERENCES) > 0, false()))
            replaced = self._replaced(F.col(image), F.col(_REFERENCES))
            rows = rows.replace_fields({image: here.chosen(replaced, F.col(image))}, here)
        return rows.without(_REFERENCES)

    def _large(self, fields: Column) -> Column:
        if self.fields:
            found = F.array(*(_candidate(F.lit(n), value_at(fields, n)) for n in self.fields))
        else:
            found = F.transform(
                F.map_entries(fields), lambda entry: _candidate(entry["key"], entry["value"])
            )
        return F.filter(found, lambda one: F.octet_length(one["value"]) >= self.size_threshold)

    def _replaced(self, fields: Column, references: Column) -> Column:
        def reference(name: Column) -> Column:
            return F.parse_json(references[name])

        def named(name: str) -> Change:
            return lambda value: F.coalesce(reference(F.lit(name)), value)

        if self.fields:
            return edit(fields, {name: named(name) for name in self.fields})
        return F.transform_values(fields, lambda key, value: F.coalesce(reference(key), value))


_REFERENCES: Final = "__references"


def _candidate(name: Column, value: Column) -> Column:
    return F.struct(
        name.alias("name"), text(value).alias("value"), is_string(value).alias("is_text")
    )


def _storing(place: BlobStoreLocation) -> Any:
    """A Spark function from table and large values to references by name."""
    # Imported here: it would take a third of the memory of a pipeline's driver.
    import pyarrow as pa

    def stored(tables: pa.Array, large: pa.Array) -> pa.Array:
        references = [
            [
                (one["name"], _store(place, table, one["name"], one["value"], text=one["is_text"]))
                for one in values
            ]
            for table, values in zip(tables.to_pylist(), large.to_pylist(), strict=True)
        ]
        return pa.array(references, pa.map_(pa.string(), pa.string()))

    # Its kind is read from the annotations above; the published overloads require it twice.
    return cast("Any", arrow_udf)(stored, returnType="map<string,string>")


def _store(place: BlobStoreLocation, table: str, name: str, value: str, *, text: bool) -> str:
    """Stores one value and returns its reference as JSON."""
    content, kind = _content(value, text=text, is_base64=place.is_base64)
    digest = hashlib.sha256(content).hexdigest()
    parts: Sequence[str] = (place.prefix, _safe(table), _safe(name), f"{digest}.bin")
    key = "/".join(part for part in parts if part)
    _object_store(place).put(key, content)
    reference = {
        "__externalized": True,
        "url": f"{_SCHEMES[place.provider]}{place.bucket}/{key}",
        "size": len(content),
        "content_type": kind,
        "sha256": digest,
    }
    return msgspec.json.encode(reference).decode()


def _content(value: str, *, text: bool, is_base64: bool) -> tuple[bytes, str]:
    if not text:
        return value.encode(), "application/json"
    if is_base64:
        try:
            return base64.b64decode(value, validate=True), "application/octet-stream"
        except binascii.Error:
            return value.encode(), "text/plain; charset=utf-8"
    return value.encode(), "text/plain; charset=utf-8"


def _safe(part: str) -> str:
    """A name as part of an object's key."""
    return _UNSAFE.sub("_", part)[:200]


@lru_cache(maxsize=64)
def _object_store(place: BlobStoreLocation) -> "ObjectStore":
    """The store of a location, cached in the worker process."""
    from obstore.store import AzureStore, GCSStore, LocalStore, S3Store

    options: dict[str, Any] = dict(place.options)
    match place.provider:
        case "s3":
            return S3Store(place.bucket, **options)
        case "gcs":
            return GCSStore(place.bucket, **options)
        case "azure":
            return AzureStore(place.bucket, **options)
        case "local":
            return LocalStore(place.bucket, mkdir=True)
