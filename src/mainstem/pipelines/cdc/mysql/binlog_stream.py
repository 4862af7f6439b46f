"""The binary log of a server: reads events from a position, and finds positions by GTID.

The log is read as ``mysqlbinlog`` does, as a replica with server id 0: nothing is registered at the
server, readers do not disconnect one another, and a dump ends at the end of the log.
"""

from collections.abc import Iterator
from typing import Final

from mainstem.pipelines.cdc.mysql import binlog as log
from mainstem.pipelines.cdc.mysql.gtid import GtidState, unpacked
from mainstem.pipelines.cdc.mysql.offset import BinlogPosition, MysqlOffset
from mainstem.pipelines.cdc.mysql.server import MysqlCdcServer, lost_log

FIRST_POSITION: Final = 4
"""The position of the first event in every file, after the magic number."""
_COM_BINLOG_DUMP: Final = 0x12
_COM_BINLOG_DUMP_GTID: Final = 0x1E
_NON_BLOCKING: Final = 1
_BY_NAME: Final = 4
_SERVER_ID: Final = 0


def events(server: MysqlCdcServer, start: BinlogPosition) -> Iterator[bytes]:
    """The events from a position to the end of the log."""
    asked = (
        start.position.to_bytes(4, "little")
        + _NON_BLOCKING.to_bytes(2, "little")
        + _SERVER_ID.to_bytes(4, "little")
        + start.file.encode()
    )
    return server.dump(_COM_BINLOG_DUMP, asked)


def _events_after(server: MysqlCdcServer, gtid: str) -> Iterator[bytes]:
    """The events of transactions that a GTID set does not contain."""
    if server.flavour == "mariadb":
        server.run("SET @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0")
        server.run(f"SET @slave_connect_state = '{GtidState(gtid).text}'")
        yield from events(server, BinlogPosition("", FIRST_POSITION))
        return
    packed = GtidState(gtid).packed
    asked = (
        (_NON_BLOCKING | _BY_NAME).to_bytes(2, "little")
        + _SERVER_ID.to_bytes(4, "little")
        + (0).to_bytes(4, "little")
        + FIRST_POSITION.to_bytes(8, "little")
        + len(packed).to_bytes(4, "little")
        + packed
    )
    yield from server.dump(_COM_BINLOG_DUMP_GTID, asked)


def locate(server: MysqlCdcServer, where: MysqlOffset) -> BinlogPosition:
    """Where a stream continues: the position where it stopped, or the one of its GTID set here.

    Raises:
        InvalidRequest: the log does not reach back that far, or has another order.
    """
    if where.server == server.identity:
        server.require(where.spot)
        # The server id of every MariaDB is 1 unless it was configured.
        if server.flavour != "mariadb" or _is_at(server, where.spot, where.gtid):
            return where.spot
    if not where.gtid:
        raise lost_log(str(where.spot), "the server is another one, and GTIDs are disabled")
    return _find(server, where.gtid)


def _find(server: MysqlCdcServer, gtid: str) -> BinlogPosition:
    end = server.end_of_log()
    found = _first_after(_another(server), gtid) or end
    if not _is_at(server, found, gtid):
        raise lost_log(gtid, f"the server has other transactions before {found}")
    return found


def _first_after(reader: MysqlCdcServer, gtid: str) -> BinlogPosition | None:
    """Where the first transaction starts that a GTID set does not contain."""
    file = ""
    try:
        for event in _events_after(reader, gtid):
            head = log.header(event)
            if head.kind == log.ROTATE:
                file = log.rotate(event).file
            elif head.kind in {log.MARIADB_GTID, log.MYSQL_GTID}:
                return BinlogPosition(file, head.end - head.size)
    finally:
        reader.close()
    return None


def _is_at(server: MysqlCdcServer, spot: BinlogPosition, gtid: str) -> bool:
    return GtidState(gtid_at(server, spot)).text == GtidState(gtid).text


def gtid_at(server: MysqlCdcServer, spot: BinlogPosition) -> str:
    """The GTID set of a position in the log."""
    if server.flavour == "mariadb":
        return server.mariadb_gtid_at(spot)
    # Transactions that were restored from a backup are in none of the files.
    state = GtidState(server.setting("gtid_purged"))
    reader = _another(server)
    try:
        for event in events(reader, BinlogPosition(spot.file, FIRST_POSITION)):
            head = log.header(event)
            if head.kind == log.PREVIOUS_GTIDS:
                state.add_all(unpacked(event[log.HEADER.size :]))
            elif head.end > spot.position:
                break
            elif head.kind == log.MYSQL_GTID:
                state.add(log.mysql_gtid(event).text)
    finally:
        reader.close()
    return state.text


def _another(server: MysqlCdcServer) -> MysqlCdcServer:
    """A separate session, because a dump occupies its session."""
    return MysqlCdcServer(server.config)
