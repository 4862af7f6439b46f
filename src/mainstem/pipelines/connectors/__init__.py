"""The built-in connectors, one module each.

A module defines ``SOURCE``, ``SINK`` or both. Its name, with dashes, is the connector's name. It
imports the libraries of its extra only when it is used, so listing connectors needs none of them.
"""
