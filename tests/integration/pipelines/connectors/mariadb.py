"""A MariaDB server of the tests' own, on a free port of this machine, gone when they end."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import pymysql

from mainstem.testing.ports import free_port

START_TIMEOUT_S = 60.0
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


class MariaDbServer:
    """A context manager. Started by root, the server takes another name."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="mainstem-maria-", dir="/tmp"))
        # A server that starts removes temporary tables of others from a folder that they share.
        self._as: dict[str, Any] = {"env": os.environ | {"TMPDIR": str(self._folder)}}
        if os.getuid() == 0:
            # Debian makes the name with the whole server only, and the programs are enough here.
            known = {entry.pw_name for entry in pwd.getpwall()}
            user = pwd.getpwnam("mysql" if "mysql" in known else "nobody")
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        data = self._folder / "data"
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={data}"]
        subprocess.run(
            [*install, "--auth-root-authentication-method=normal", "--skip-test-db"],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=120,
            **self._as,
        )
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    shutil.which("mariadbd", path=PATH) or "mariadbd",
                    "--no-defaults",
                    f"--datadir={data}",
                    f"--port={self.port}",
                    "--bind-address=127.0.0.1",
                    f"--socket={self._folder / 'sock'}",
                    "--innodb-buffer-pool-size=32M",
                    "--innodb-flush-log-at-trx-commit=0",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._as,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.connect().close()
            except pymysql.MySQLError:
                assert time.monotonic() < deadline, (self._folder / "log").read_text()
                time.sleep(0.1)
            else:
                return self

    def __exit__(self, *problem: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)
        shutil.rmtree(self._folder)

    def connect(self, database: str | None = None) -> Any:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True
        )
