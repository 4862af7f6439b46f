"""Data pipelines on Spark: topics in Spark, connectors, transforms, change data capture.

They run in a separate process and access nodes only over the network; credentials of databases and
object stores are kept here and never in a node.
"""
