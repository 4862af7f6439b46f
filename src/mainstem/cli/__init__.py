"""The ``mainstem`` command: starts nodes, otherwise talks to them through ``client``."""
