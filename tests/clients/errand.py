"""The errand that a scenario sends a client driver on, as a JSON file.

One process per errand: it reads the file named by its only argument, does what ``op`` says with
the client it stands for, in that client's default configuration, and ends with status 0. The
operations:

* ``create``  a topic with ``partitions`` and ``configs``
* ``produce`` the records of ``input`` to ``topic``, compressed by ``codec`` if there is one
* ``consume`` ``count`` records as a member of ``group``, commit them, leave; they go to ``output``
* ``read``    ``count`` records of one partition from ``offset`` or from ``timestamp_ms`` on
* ``member``  consume as a member of ``group`` into ``output`` until killed
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

PRODUCER_ROOM_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Errand:
    """What one client process is asked to do."""

    op: str
    bootstrap: str
    topic: str
    partitions: int = 1
    configs: dict[str, str] = field(default_factory=dict)
    group: str = ""
    input: str = ""
    output: str = ""
    codec: str = ""
    count: int = 0
    partition: int = 0
    offset: int | None = None
    timestamp_ms: int | None = None
    # The largest record that this errand meets; drivers raise their client's limits to it, as a
    # user must, only when it is not 0.
    max_record_bytes: int = 0
    # 0 keeps the client's own default.
    session_timeout_ms: int = 0

    def save(self, path: Path) -> None:
        """Write the errand where a driver will read it."""
        path.write_text(json.dumps(asdict(self)))

    @property
    def request_bytes(self) -> int:
        """The request size that lets the largest record through."""
        return self.max_record_bytes + PRODUCER_ROOM_BYTES


def from_arguments() -> Errand:
    """The errand this process was started for."""
    return Errand(**json.loads(Path(sys.argv[1]).read_text()))
