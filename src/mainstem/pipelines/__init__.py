"""Data pipelines on Spark: topics in Spark, connectors, transforms, change data capture.

They run in a process of their own and reach nodes over the wire only; credentials of databases and
stores live here and never in a node.
"""
