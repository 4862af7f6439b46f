"""A setting that nothing reads would be a false promise."""

import re
from pathlib import Path

from mainstem.node.config.setting_spec import leaves

SRC = Path(__file__).parents[3] / "src" / "mainstem"
CONFIG = SRC / "node" / "config"
DECLARED_IN = {
    CONFIG / name
    for name in ("settings.py", "security.py", "setting_spec.py", "loader.py", "command_line.py")
}


def source_outside_the_declarations() -> str:
    assert all(path.is_file() for path in DECLARED_IN)
    paths = [path for path in SRC.rglob("*.py") if path not in DECLARED_IN]
    return "\n".join(path.read_text() for path in paths)


def test_every_setting_is_read_by_somebody() -> None:
    source = source_outside_the_declarations()
    # Handed over as a whole, or under Kafka's names (``Config.kafka_names``).
    whole = ("groups.", "share.", "topics.", "transactions.")
    unread = [
        path
        for path in leaves()
        if not path.startswith(whole) and not re.search(rf"\b{re.escape(path)}\b", source)
    ]
    assert not unread
