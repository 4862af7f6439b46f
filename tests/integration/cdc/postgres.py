"""A PostgreSQL server of the tests' own, on a free port of this machine, gone when they end."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, LiteralString, Self

import psycopg
from psycopg import sql

from mainstem.testing.ports import free_port

FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "fsync": "off",  # a test's data need not survive the machine
    "shared_buffers": "'32MB'",
    "timezone": "'America/New_York'",  # ours must not depend on the server's
    "lc_monetary": "'C'",
}


def program(name: str) -> str | None:
    """A program of the server, which Debian keeps out of the path."""
    for folder in FOLDERS:
        if (folder / name).exists():
            return str(folder / name)
    return shutil.which(name)


class PostgresServer:
    """A context manager. The server refuses to run as root, so root lends it another name."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="mainstem-pg-", dir="/tmp"))
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.port = free_port()

    def __enter__(self) -> Self:
        data = self._folder / "data"
        self._run("initdb", "-D", str(data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "-N")
        with (data / "postgresql.conf").open("a") as out:
            settings = {
                **SETTINGS,
                "port": str(self.port),
                "unix_socket_directories": f"'{self._folder}'",
            }
            out.writelines(f"{name} = {value}\n" for name, value in settings.items())
        self._run("pg_ctl", "-D", str(data), "-w", "-l", str(self._folder / "log"), "start")
        return self

    def __exit__(self, *problem: object) -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "stop")
        shutil.rmtree(self._folder)

    def restart(self) -> None:
        """As after a crash: sessions are cut, nothing is written first."""
        data, log = str(self._folder / "data"), str(self._folder / "log")
        self._run("pg_ctl", "-D", data, "-m", "immediate", "-w", "-l", log, "restart")

    def _run(self, name: str, *arguments: str) -> None:
        command = program(name)
        assert command is not None, name
        subprocess.run(
            [command, *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=self._folder,
            timeout=60,
            **self._as,
        )

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", dbname=database, autocommit=True
        )

    def run(self, statement: LiteralString, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Statements, and the rows of the last one that has any."""
        with self.connect(database) as session:
            cursor = session.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def drop(self, database: str) -> None:
        """A database with its slots, whoever still reads them."""
        with self.connect() as session:
            for _ in range(100):
                session.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                    (database,),
                )
                session.execute(
                    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                    " WHERE database = %s AND NOT active",
                    (database,),
                )
                left = session.execute(
                    "SELECT 1 FROM pg_replication_slots WHERE database = %s", (database,)
                ).fetchall()
                if not left:
                    break
                time.sleep(0.1)
            session.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database))
            )
