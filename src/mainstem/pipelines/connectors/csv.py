"""The ``csv`` connector: ``file`` for folders of CSV files, in and out."""

from mainstem.pipelines.connectors.file import FileSink, FileSource

SOURCE = FileSource("csv", "csv")
SINK = FileSink("csv", "csv")
