"""The process that works on files for a node."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

NODE = """
import asyncio
from mainstem.streams.maintenance.worker_process_driver import FileWorkerProcess

async def live():
    worker = FileWorkerProcess()
    print(await worker.run(eval, "__import__('os').getpid()"), flush=True)
    await asyncio.sleep(60)

if __name__ == "__main__":
    asyncio.run(live())
"""


def test_a_worker_ends_with_the_node_that_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "node.py"
    script.write_text(NODE)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        worker = int(node.stdout.readline())
        assert is_running(worker)
        node.kill()
    for _ in range(500):
        if not is_running(worker):
            break
        time.sleep(0.02)
    assert not is_running(worker)


def is_running(process: int) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(process, 0)
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    return False
