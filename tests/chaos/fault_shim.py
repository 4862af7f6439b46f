"""Faults of one running process: stalled or failing disks, no descriptors, a clock that jumps.

A preloaded library (``fault_shim.c``) looks at a shared page before it calls the kernel; a test
writes that page. Nothing of the product knows of it.
"""

import mmap
import struct
import subprocess
from pathlib import Path
from typing import Final

_LAYOUT: Final = struct.Struct("=4i2q")
_FIELDS: Final = {
    "sync_stalls": (0, "i"),
    "sync_fails": (4, "i"),
    "read_fails": (8, "i"),
    "no_descriptors": (12, "i"),
    "wall_offset_ns": (16, "q"),
}
_HITS_AT: Final = 24


def compile_fault_shim(folder: Path) -> Path:
    """Compile the library that is preloaded into nodes."""
    library = folder / "fault_shim.so"
    source = Path(__file__).with_name("fault_shim.c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


class FaultPage:
    """The switches of one process.

    Args:
        path: the file that is shared with the process.
        library: the compiled library.
        data_dir: the folder whose files fail.
    """

    def __init__(self, path: Path, library: Path, data_dir: Path) -> None:
        path.write_bytes(bytes(_LAYOUT.size))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _LAYOUT.size)
        self.environment = {
            "LD_PRELOAD": str(library),
            "MAINSTEM_FAULT_PAGE": str(path),
            "MAINSTEM_FAULT_FOLDER": str(data_dir),
        }

    def set(self, name: str, value: int) -> None:
        """Begin a fault (not zero) or end it (zero)."""
        at, kind = _FIELDS[name]
        struct.pack_into(f"={kind}", self._page, at, value)

    @property
    def hits(self) -> int:
        """How many calls have failed or waited so far."""
        found: int = struct.unpack_from("=q", self._page, _HITS_AT)[0]
        return found

    def clear(self) -> None:
        """End every fault."""
        for name in _FIELDS:
            self.set(name, 0)
