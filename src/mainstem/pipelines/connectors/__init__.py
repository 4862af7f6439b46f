"""The built-in connectors, one module each; adding a connector is adding a module.

A module offers ``SOURCE``, ``SINK`` or both. Its name, with dashes, is the connector's name. It
imports the libraries of its extra only when it is used, so that the inventory needs none of them.
"""
