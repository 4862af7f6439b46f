"""Installs what the demonstration needs beside the node: Spark, and Java where there is none."""

import asyncio
import contextlib
import importlib
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mainstem.cli.live_line import LiveLine
from mainstem.model.errors import ErrorCode, Unavailable

MODULES: Final = ("pandas", "pyarrow", "pyspark.sql")
TICK_S: Final = 1.0
# Where the pinned versions stand when this is a checkout of the sources.
CONSTRAINTS: Final = Path(__file__).parents[3] / "constraints.txt"


def missing_modules() -> list[str]:
    """What the demonstration imports and this Python does not find."""
    return [name for name in MODULES if not _is_found(name)]


def install_command() -> list[str]:
    """How pip brings it: the extra of the very version that runs, which pip leaves as it is."""
    wanted = f"mainstem[connect]=={version('mainstem')}"
    pinned = ["--constraint", str(CONSTRAINTS)] if CONSTRAINTS.exists() else []
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    return [sys.executable, "-m", "pip", "install", *quiet, *pinned, wanted]


async def install(line: LiveLine) -> None:
    """Install what is missing, telling how long it takes.

    Raises:
        Unavailable: pip could not, for want of a network or otherwise; its last words are told.
    """
    began = asyncio.get_running_loop().time()
    line.say("Installing Spark for the demonstration: some 600 MB, once, a few minutes ...")
    pip = await asyncio.create_subprocess_exec(
        *install_command(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    talk = asyncio.ensure_future(pip.communicate())
    try:
        while not talk.done():
            await asyncio.wait([talk], timeout=TICK_S)
            line.show(f"  {asyncio.get_running_loop().time() - began:.0f} s")
        said, _ = talk.result()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            pip.kill()
        await pip.wait()
        raise
    importlib.invalidate_caches()
    if pip.returncode or missing_modules():
        raise Unavailable(
            ErrorCode.INVALID_CONFIG,
            f"Spark could not be installed: {_last_words(said) or 'pip did not bring it'}",
            subject="mainstem[connect]",
            remedy=f"with a network, run: {' '.join(install_command())}",
        )
    line.say(f"Installed in {asyncio.get_running_loop().time() - began:.0f} s.")


def _is_found(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:  # the package that should hold it is not there
        return False


def _last_words(said: bytes) -> str:
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [""])[-1].removeprefix("ERROR:").strip()
