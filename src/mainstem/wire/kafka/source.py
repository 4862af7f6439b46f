"""Lines of generated Python and the names they use; the common part of decoder and encoder."""

import struct
from typing import Any


class Source:
    """Collects the lines of one function, and the objects its globals name."""

    __slots__ = ("_count", "lines", "names")

    def __init__(self, names: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.names = dict(names)
        self._count = 0

    def line(self, depth: int, text: str) -> None:
        """Adds a line at an indentation depth."""
        self.lines.append("    " * depth + text)

    def fresh(self, prefix: str) -> str:
        """A variable name that nothing else uses."""
        self._count += 1
        return f"{prefix}{self._count}"

    def bind(self, prefix: str, value: object) -> str:
        """Makes an object reachable from the function under a fresh name."""
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def packer(self, formats: str) -> str:
        """The name of the pack function of a run of fixed fields."""
        name = "pack_" + formats.replace("?", "z")
        self.names[name] = struct.Struct(">" + formats).pack
        return name

    def unpacker(self, formats: str) -> tuple[str, int]:
        """The name of the unpack function of a run of fixed fields, and the run's size."""
        name = "unpack_" + formats.replace("?", "z")
        layout = struct.Struct(">" + formats)
        self.names[name] = layout.unpack_from
        return name, layout.size

    def function(self, name: str) -> Any:
        """Compiles the lines and returns the function they define."""
        code = compile("\n".join(self.lines), f"<kafka codec: {name}>", "exec")
        # The text comes from our own schema table alone, never from a peer.
        exec(code, self.names)  # noqa: S102
        return self.names[name]
