"""The ``json`` connector: ``file`` for folders of JSON files, as source and sink."""

from mainstem.pipelines.connectors.file import FileSink, FileSource

SOURCE = FileSource("json", "json")
SINK = FileSink("json", "json")
