"""The ``avro`` connector: ``file`` for folders of Avro files, as source and sink."""

from mainstem.pipelines.connectors.file import FileSink, FileSource

SOURCE = FileSource("avro", "avro")
SINK = FileSink("avro", "avro")
