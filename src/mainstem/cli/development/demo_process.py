"""The demonstration as the node's process sees it: started once the node serves, stopped before it.

Promises: Ctrl-C in a terminal reaches the node alone, which stops the demonstration first; a second
Ctrl-C ends it at once; nothing that it started outlives it, and it does not outlive the node.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

STOP_TIMEOUT_S: Final = 45.0


class DemoProcess:
    """One child process in a session of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, kafka: str, folder: Path, command: str) -> None:
        """Begin; the child tells by itself how it goes."""
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "mainstem.cli.development.demo", kafka, str(folder), command],
            # Nothing is written to it: its end tells the child that this process has ended.
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    async def stop(self) -> None:
        """End the pipelines between two batches, or at once at a second Ctrl-C."""
        process = self._process
        if process is None:
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._end)
        process.terminate()
        try:
            await asyncio.wait_for(asyncio.to_thread(process.wait), STOP_TIMEOUT_S)
        except TimeoutError:
            pass
        finally:
            self._end()

    def _end(self) -> None:
        """The whole session: pipelines, Java, Python workers, pip."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
