"""The ``parquet`` connector: ``file`` for folders of Parquet files, as source and sink."""

from mainstem.pipelines.connectors.file import FileSink, FileSource

SOURCE = FileSource("parquet", "parquet")
SINK = FileSink("parquet", "parquet")
