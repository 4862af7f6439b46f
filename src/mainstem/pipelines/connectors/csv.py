"""The ``csv`` connector: ``file`` for folders of CSV files, as source and sink."""

from mainstem.pipelines.connectors.file import FileSink, FileSource

SOURCE = FileSource("csv", "csv")
SINK = FileSink("csv", "csv")
