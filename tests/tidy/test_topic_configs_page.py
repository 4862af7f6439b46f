"""The page of topic settings is what the settings say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_topic_settings_is_what_the_settings_say() -> None:
    """After a change of a setting: ``.venv/bin/python scripts/topic-configs-page``."""
    written = subprocess.run(
        [sys.executable, ROOT / "scripts" / "topic-configs-page", "--print"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ROOT / "docs" / "reference" / "topic-configs.md").read_text() == written.stdout
