"""Small shell scripts that wrap other programs, stored in the user's cache."""

import os
from collections.abc import Mapping
from pathlib import Path


def write_script(script: Path, text: str) -> Path:
    """Creates or updates a script.

    Raises:
        OSError: the folder is not writable.
    """
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Written to a temporary file and moved, since several processes may create it at once.
        draft = script.with_name(f"{script.name}.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(script)
    return script


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder for files that can be created again."""
    named = environment.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "mainstem"
