"""A replica that takes the place of its MariaDB server: the stream goes on at the same name."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.cdc.follow import Following, brief
from tests.integration.cdc_mysql.mariadb import GIVEN_PORT, MariadbServer, numbers

from mainstem.model.errors import InvalidRequest
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig

pytestmark = [
    pytest.mark.needs("mariadb"),
    pytest.mark.timeout(120),
    pytest.mark.skipif(GIVEN_PORT > 0, reason="takes two servers of the tests' own"),
]

PATIENCE_S = 60.0
Run = Callable[..., tuple[tuple[Any, ...], ...]]


@pytest.fixture(scope="module")
def replica(server: MariadbServer) -> Iterator[MariadbServer]:
    """A server that does what the first one did, and logs it in files of its own."""
    with MariadbServer("--server-id=2", "--log-slave-updates=1") as second:
        [(here,)] = server.run("SELECT @@gtid_binlog_pos")
        second.run(
            f"SET GLOBAL gtid_slave_pos = '{here}'",
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {server.port},"
            " MASTER_USER = 'root', MASTER_USE_GTID = slave_pos",
            "START SLAVE",
        )
        yield second
        second.run("STOP SLAVE")


def caught_up(server: MariadbServer, replica: MariadbServer) -> None:
    [(wanted,)] = server.run("SELECT @@gtid_binlog_pos")
    [(missed,)] = replica.run(f"SELECT MASTER_GTID_WAIT('{wanted}', {PATIENCE_S})")
    assert missed == 0, replica.run("SHOW SLAVE STATUS")


def test_a_stream_goes_on_at_the_same_transaction_of_another_server(
    server: MariadbServer, replica: MariadbServer, run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    first = Following(config, tmp_path)
    first.all()
    run("INSERT INTO t VALUES (2)")
    first.all()
    run("INSERT INTO t VALUES (3)", "UPDATE t SET id = 4 WHERE id = 2")
    caught_up(server, replica)

    there = first.again(msgspec.structs.replace(config, port=replica.port))
    told = there.all()
    run("DELETE FROM t WHERE id = 1")
    caught_up(server, replica)
    later = there.again().all()
    back = there.again(config)

    assert there.position.server == "2"
    assert [row for row in brief(told) if row[0] != "tombstone"] == [
        ("c", None, {"id": 3}),
        ("d", {"id": 2}, None),
        ("c", None, {"id": 4}),
    ]
    assert [row[0] for row in brief(later)] == ["d", "tombstone"]
    assert [row[0] for row in brief(back.all())] == ["d", "tombstone"]


def test_a_server_that_lacks_a_transaction_is_refused(
    server: MariadbServer, replica: MariadbServer, run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id INT PRIMARY KEY)")
    caught_up(server, replica)
    replica.run("STOP SLAVE")
    run("INSERT INTO t VALUES (1)")
    first = Following(config, tmp_path)
    first.all()

    behind = first.again(msgspec.structs.replace(config, port=replica.port))
    with pytest.raises(InvalidRequest) as refused:
        behind.step()
    replica.run("START SLAVE")
    caught_up(server, replica)

    assert "changes are lost" in refused.value.cause
    assert behind.all() == []
    run("INSERT INTO t VALUES (2)")
    caught_up(server, replica)
    assert brief(behind.all()) == [("c", None, {"id": 2})]


def test_another_server_in_the_middle_of_a_snapshot_is_refused_unless_all_may_be_read_again(
    server: MariadbServer, replica: MariadbServer, run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id INT PRIMARY KEY)", f"INSERT INTO t SELECT seq FROM {numbers(9)}")
    caught_up(server, replica)
    first = Following(msgspec.structs.replace(config, snapshot_rows_per_file=3), tmp_path)
    first.step(rows_max=3)
    elsewhere = msgspec.structs.replace(first.config, port=replica.port)

    with pytest.raises(InvalidRequest, match="before the snapshot was complete"):
        first.again(elsewhere).step()

    needy = first.again(msgspec.structs.replace(elsewhere, snapshot_mode="when_needed"))
    assert [row[0] for row in brief(needy.all())] == ["r"] * 9
