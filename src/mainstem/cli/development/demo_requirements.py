"""Installs what the demonstration needs: Spark, and Java if there is none."""

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
# The pinned versions, if this is a checkout of the sources.
CONSTRAINTS: Final = Path(__file__).parents[4] / "constraints.txt"


def missing_modules() -> list[str]:
    """The modules that the demonstration imports and that are not installed."""
    return [name for name in MODULES if not _is_found(name)]


def requirements(extra: str) -> Iterator[str]:
    """The requirements of an extra of the installed package.

    They are listed one by one: given the package, pip might install another one of that name.
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
    """The pip command that installs the requirements."""
    pinned = ["--constraint", str(CONSTRAINTS)] if CONSTRAINTS.exists() else []
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    return [sys.executable, "-m", "pip", "install", *quiet, *pinned, *requirements(EXTRA)]


async def install(line: LiveLine) -> None:
    """Install what is missing and show the time it takes.

    Raises:
        Unavailable: pip failed, for lack of a network or another reason; the error names it.
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
            remedy="fix this and start again; --no-demo skips the demonstration",
        )
    line.print_line(f"Installed in {asyncio.get_running_loop().time() - began:.0f} s.")


def _is_found(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:  # the parent package is missing
        return False


def _reason(pip_output: bytes) -> str:
    text = pip_output.decode(errors="replace")
    if "connection broken" in text:
        return "the package index is not reachable"
    errors = [line.removeprefix("ERROR:") for line in text.splitlines() if line[:6] == "ERROR:"]
    return (errors or text.splitlines() or ["pip failed"])[0].strip()
