"""A MariaDB server of the tests' own, on a free port of this machine, gone when they end.

``MAINSTEM_MYSQL_PORT=3306 pytest tests/integration/cdc_mysql`` runs the tests with a MySQL server
that is there already, where ``root`` needs no password; its logs are thrown away.
"""

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

PATIENCE_S = 60.0
SETTINGS = (
    "--bind-address=127.0.0.1",
    "--server-id=1",
    "--log-bin=mysql-bin",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
    "--gtid-strict-mode=1",
    "--innodb-buffer-pool-size=32M",
    "--innodb-flush-log-at-trx-commit=0",  # a test's data need not survive the machine
    "--default-time-zone=-05:00",  # ours must not depend on the server's
)


GIVEN_PORT = int(os.environ.get("MAINSTEM_MYSQL_PORT", "0"))


def numbers(last: int) -> str:
    """A table of the numbers from 1 on, in its column ``seq``, for any server."""
    counted = f"SELECT 1 AS seq UNION ALL SELECT seq + 1 FROM q WHERE seq < {last}"
    return f"(WITH RECURSIVE q AS ({counted}) SELECT seq FROM q) AS numbers"


class MariadbServer:
    """A context manager; root lends the server another name."""

    def __init__(self, *settings: str) -> None:
        self._settings = settings
        self._folder = Path(tempfile.mkdtemp(prefix="mainstem-maria-", dir="/tmp"))
        # A server that starts removes temporary tables of others from a folder that they share.
        self._as: dict[str, Any] = {"env": os.environ | {"TMPDIR": str(self._folder)}}
        if os.getuid() == 0:
            known = {each.pw_name for each in pwd.getpwall()}
            user = pwd.getpwnam("mysql" if "mysql" in known else "nobody")
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.port = free_port()

    def __enter__(self) -> Self:
        data = self._folder / "data"
        subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={data}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=self._folder,
            timeout=PATIENCE_S,
            **self._as,
        )
        program = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
        with (self._folder / "log").open("wb") as out:
            self._process = subprocess.Popen(
                [
                    program,
                    "--no-defaults",
                    f"--datadir={data}",
                    f"--port={self.port}",
                    f"--socket={self._folder}/socket",
                    *SETTINGS,
                    *self._settings,
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                **self._as,
            )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.connect().close()
            except pymysql.err.OperationalError:
                assert time.monotonic() < deadline, (self._folder / "log").read_text()
                assert self._process.poll() is None, (self._folder / "log").read_text()
                time.sleep(0.1)
            else:
                return self

    @property
    def flavour(self) -> str:
        """What its events call it."""
        [(version,)] = self.run("SELECT version()")
        return "mariadb" if "MariaDB" in version else "mysql"

    def __exit__(self, *problem: object) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder)

    def connect(self, database: str | None = None) -> Any:
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            database=database,
            charset="utf8mb4",
            autocommit=True,
        )

    def run(self, *statements: str, database: str | None = None) -> tuple[tuple[Any, ...], ...]:
        """Statements, and the rows of the last one."""
        session = self.connect(database)
        try:
            with session.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                found: tuple[tuple[Any, ...], ...] = cursor.fetchall()
                return found
        finally:
            session.close()


class GivenServer(MariadbServer):
    """A server that somebody else runs."""

    def __init__(self) -> None:
        self.port = GIVEN_PORT

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        pass


def purge_logs(server: MariadbServer) -> None:
    """Begin a new file of the log, and throw all others away."""
    server.run("FLUSH BINARY LOGS")
    newest = server.run("SHOW BINARY LOGS")[-1][0]
    deadline = time.monotonic() + PATIENCE_S
    while len(server.run("SHOW BINARY LOGS")) > 1:  # the engine lets go of a file in its own time
        assert time.monotonic() < deadline
        server.run(f"PURGE BINARY LOGS TO '{newest}'")
        time.sleep(0.05)
