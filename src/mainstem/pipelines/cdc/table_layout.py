"""How rows of a table are written, for any database: columns, masks, keys, schemas. Pure."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import NamedTuple

from mainstem.pipelines.cdc.avro.columns import MASKED
from mainstem.pipelines.cdc.avro.events import table_schemas
from mainstem.pipelines.cdc.avro.schema import TableSchemas
from mainstem.pipelines.cdc.avro.value_types import AvroType
from mainstem.pipelines.cdc.envelope import Convert, EventField, RowLayout
from mainstem.pipelines.cdc.settings import CdcConfig
from mainstem.pipelines.cdc.table_selection import kept_columns, mask_for, matches, null_for


class WrittenColumn(NamedTuple):
    """A column, the converter of its values, and a function for its Avro type."""

    name: str
    convert: Convert
    kind: Callable[[], AvroType]


class TableLayout:
    """The captured columns of a table, and those of its key: ``key`` unless configured otherwise.

    ``place`` is its schema, or its database, and its name.
    """

    def __init__(
        self,
        place: tuple[str, str],
        columns: Sequence[WrittenColumn],
        key: Sequence[str],
        config: CdcConfig,
    ) -> None:
        self._place = place
        self._config = config
        full_name = ".".join(place)
        names = [column.name for column in columns]
        asked = (
            each for pattern, each in config.key_columns.items() if matches(full_name, [pattern])
        )
        keyed = [name for name in next(asked, key) if name in names]
        kept = kept_columns(full_name, names, config.include_columns, config.exclude_columns)
        fields = {
            column.name: self._field(full_name, at, column) for at, column in enumerate(columns)
        }
        self._row = [fields[name] for name in names if name in kept or name in keyed]
        self._key = [fields[name] for name in keyed]
        self.rows = RowLayout(self._row, self._key, placeholder=config.placeholder)

    def _field(self, full_name: str, at: int, column: WrittenColumn) -> EventField:
        config, name = self._config, f"{full_name}.{column.name}"
        mask = mask_for(name, config.mask_columns, config.mask_salt)
        kind = None
        if config.format == "avro":
            kind = column.kind() if mask is None else MASKED
        null = null_for(name, config.mask_columns)
        return EventField(column.name, at, mask or column.convert, kind, null)

    def schemas(self, source: AvroType) -> TableSchemas | None:
        """The Avro schemas of keys and events; None if the format is not Avro."""
        if self._config.format != "avro":
            return None
        return table_schemas((self._config.source_name, *self._place), self._row, self._key, source)


@lru_cache
def own_version() -> str:
    """The version of this package in ``source``."""
    return version("mainstem")
