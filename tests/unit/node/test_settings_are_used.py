"""A setting that nothing reads would be a false promise."""

import re
from pathlib import Path

from mainstem.node.config_leaf import leaves

SRC = Path(__file__).parents[3] / "src" / "mainstem"
DECLARED_IN = {
    "config.py",
    "security_config.py",
    "config_leaf.py",
    "config_source.py",
    "arguments.py",
}


def source_outside_the_declarations() -> str:
    paths = [
        path
        for path in SRC.rglob("*.py")
        if not (path.parent.name == "node" and path.name in DECLARED_IN)
    ]
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
