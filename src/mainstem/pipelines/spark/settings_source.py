"""Data sources of connectors: their single option contains all settings of their readers, as JSON.

A subclass defines its format, its columns, the type of its settings and its two readers.
"""

from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from mainstem.pipelines.spark.processes.planner_tuning import tune_planner

OPTION: Final = "settings.secret"  # Spark redacts options with this word wherever it shows them


class SettingsSource(DataSource):
    """A format whose readers get one struct.

    ``settings`` is the type of the struct, ``table_reader`` and ``stream_reader`` are the classes
    of the readers.
    """

    format_name: ClassVar[str]
    columns: ClassVar[str]
    settings: ClassVar[Any]
    table_reader: ClassVar[Any]
    stream_reader: ClassVar[Any]

    @classmethod
    def name(cls) -> str:
        """The name in ``format(...)``."""
        return cls.format_name

    def schema(self) -> str:
        """The columns."""
        return self.columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of the current content."""
        tune_planner()
        made: DataSourceReader = self.table_reader(self._settings())
        return made

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of the current content and later changes."""
        tune_planner()
        made: DataSourceStreamReader = self.stream_reader(self._settings())
        return made

    def _settings(self) -> Any:
        return msgspec.json.decode(self.options[OPTION], type=self.settings)


def load(
    spark: SparkSession, source: type[SettingsSource], settings: Struct, *, streaming: bool
) -> DataFrame:
    """The frame of a source."""
    spark.dataSource.register(source)
    reader = spark.readStream if streaming else spark.read
    given = msgspec.json.encode(settings).decode()
    return reader.format(source.name()).option(OPTION, given).load()
