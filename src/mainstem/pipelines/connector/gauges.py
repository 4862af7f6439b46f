"""Gauges of a connector, such as the bytes of log that the server retains for a replication slot.

A source or sink writes them into its state folder; the runtime shows them in the status and in the
metrics.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from mainstem.pipelines.connector.state_file import replace_json

FILE_NAME = "gauges.json"
GAUGES_MAX = 100  # per connector; more would be one series per table or key


def write_gauges(state_dir: Path, gauges: Mapping[str, float]) -> None:
    """Replace the gauges."""
    assert len(gauges) <= GAUGES_MAX, "too many gauges"
    state_dir.mkdir(parents=True, exist_ok=True)
    replace_json(state_dir / FILE_NAME, dict(gauges))


def read_gauges(state_dir: Path) -> dict[str, float]:
    """The connector's current gauges; empty when it has none."""
    try:
        found = msgspec.json.decode((state_dir / FILE_NAME).read_bytes(), type=dict[str, float])
    except FileNotFoundError:
        return {}
    return dict(list(found.items())[:GAUGES_MAX])
