"""The process of the demonstration: started once the node serves, stopped before the node.

Guarantees: Ctrl-C in a terminal reaches only the node, which stops the demonstration first; a
second Ctrl-C kills it; its child processes end with it, and it ends with the node.
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
    """A child process in a session of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, kafka: str, folder: Path, command: str) -> None:
        """Start the child, which prints its own progress."""
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "mainstem.cli.development.demo", kafka, str(folder), command],
            # Nothing is written to it: when it closes, the child knows that this process has ended.
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    async def stop(self) -> None:
        """Stop the pipelines between two batches, or at once on a second Ctrl-C."""
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
        """Signals the whole session: pipelines, Java, Python workers, pip."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
