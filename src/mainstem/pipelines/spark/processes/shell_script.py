"""Small programs of the shell that stand in for others, kept in the user's cache."""

import os
from collections.abc import Mapping
from pathlib import Path


def write_script(script: Path, text: str) -> Path:
    """Makes a program, or brings it up to date.

    Raises:
        OSError: nothing can be written there.
    """
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and moved, since several processes may find it missing at once.
        draft = script.with_name(f"{script.name}.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(script)
    return script


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where things may be kept that can be made again."""
    named = environment.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "mainstem"
