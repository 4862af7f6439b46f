"""Installs what the demonstration needs beside the node: Spark, and Java where there is none."""

import asyncio
import contextlib
import importlib
import re
import sys
from collections.abc import Iterator
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mainstem.cli.output.live_line import LiveLine
from mainstem.model.errors import ErrorCode, Unavailable

PACKAGE, EXTRA = "mainstem", "connect"
MODULES: Final = ("pandas", "pyarrow", "pyspark.sql")
TICK_S: Final = 1.0
# Where the pinned versions stand when this is a checkout of the sources.
CONSTRAINTS: Final = Path(__file__).parents[4] / "constraints.txt"


def missing_modules() -> list[str]:
    """What the demonstration imports and this Python does not find."""
    return [name for name in MODULES if not _is_found(name)]


def requirements(extra: str) -> Iterator[str]:
    """What an extra of the installed package asks for.

    Each is named by itself: were the package named, pip might look for another one of that name.
    """
    for text in requires(PACKAGE) or ():
        wanted, _, condition = text.partition(";")
        belongs = rf"""(\s+and\s+)?extra == ['"]{extra}['"]"""
        if re.search(belongs, condition) is None:
            continue
        if nested := re.match(rf"{PACKAGE}\[([\w-]+)\]", wanted):
            yield from requirements(nested[1])
            continue
        rest = re.sub(belongs, "", condition).strip()
        yield f"{wanted.strip()}; {rest}" if rest else wanted.strip()


def install_command() -> list[str]:
    """How pip brings it."""
    pinned = ["--constraint", str(CONSTRAINTS)] if CONSTRAINTS.exists() else []
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    return [sys.executable, "-m", "pip", "install", *quiet, *pinned, *requirements(EXTRA)]


async def install(line: LiveLine) -> None:
    """Install what is missing, telling how long it takes.

    Raises:
        Unavailable: pip could not, for want of a network or otherwise; the reason is told.
    """
    began = asyncio.get_running_loop().time()
    line.print_line("Installing Spark for the demonstration: some 600 MB, once, a few minutes ...")
    pip = await asyncio.create_subprocess_exec(
        *install_command(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = asyncio.ensure_future(pip.communicate())
    try:
        while not output.done():
            await asyncio.wait([output], timeout=TICK_S)
            line.show(f"  {asyncio.get_running_loop().time() - began:.0f} s")
        pip_output, _ = output.result()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            pip.kill()
        await pip.wait()
        raise
    importlib.invalidate_caches()
    if pip.returncode or missing_modules():
        raise Unavailable(
            ErrorCode.INVALID_CONFIG,
            f"Spark could not be installed: {_reason(pip_output)}",
            subject=f"{PACKAGE}[{EXTRA}]",
            remedy="start again when that is mended; --no-demo leaves the demonstration out",
        )
    line.print_line(f"Installed in {asyncio.get_running_loop().time() - began:.0f} s.")


def _is_found(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:  # the package that should hold it is not there
        return False


def _reason(pip_output: bytes) -> str:
    text = pip_output.decode(errors="replace")
    if "connection broken" in text:
        return "the package index does not answer"
    errors = [line.removeprefix("ERROR:") for line in text.splitlines() if line[:6] == "ERROR:"]
    return (errors or text.splitlines() or ["pip did not bring it"])[0].strip()
