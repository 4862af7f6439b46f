"""S3 servers of the tests' own: moto and ministack, each in an environment of its own.

Their pins clash with ours and with each other's, so they live below ``.cache``.
"""

import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from mainstem.testing.ports import free_port

ROOT = Path(__file__).parents[4]
READY_TIMEOUT_S = 60.0
INSTALL_TIMEOUT_S = 300
PINS = {"moto": "moto[server]==5.2.5", "ministack": "ministack==1.5.33"}


def environment(name: str) -> Path:
    """The folder of the server's environment, made when it is missing."""
    folder = ROOT / ".cache" / f"emulators-{name}"
    mark = folder / PINS[name].replace("[", "-").replace("]", "-")
    if mark.exists():
        return folder
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=60)
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", PINS[name]]
    subprocess.run(install, check=True, timeout=INSTALL_TIMEOUT_S)
    mark.touch()
    return folder


class S3Server:
    """A context manager; ``url`` is where it answers."""

    def __init__(self, name: str, folder: Path) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="mainstem-s3-")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        python = str(folder / "bin" / "python")
        self._command = {
            "moto": [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            "ministack": [str(folder / "bin" / "ministack")],
        }[name]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        variables = {
            **os.environ,
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "PATH": f"{Path(self._command[0]).parent}{os.pathsep}{os.environ['PATH']}",
        }
        with (Path(self._scratch.name) / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._scratch.name,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._answers():
            assert time.monotonic() < deadline, "the S3 server did not start"
            assert self._process.poll() is None, (Path(self._scratch.name) / "log").read_text()
            time.sleep(0.1)
        return self

    def __exit__(self, *problem: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._scratch.cleanup()

    def make_bucket(self, name: str) -> None:
        """Both servers take an unsigned request."""
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=10).close()

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.url, timeout=2).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True
