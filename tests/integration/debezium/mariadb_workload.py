"""What is done to a MariaDB database while it is followed from two sides."""

import re

# Every column of ``types``: its type, then the value of each row as SQL.
TYPES: dict[str, tuple[str, ...]] = {
    "tinyint": ("-128", "127"),
    "tinyint(1)": ("1", "0"),
    "tinyint unsigned": ("255", "0"),
    "smallint": ("-32768", "32767"),
    "smallint unsigned": ("65535", "0"),
    "mediumint": ("-8388608", "8388607"),
    "mediumint unsigned": ("16777215", "0"),
    "int": ("-2147483648", "2147483647"),
    "int unsigned": ("4294967295", "0"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "bigint unsigned": ("9223372036854775807", "0"),
    "boolean": ("true", "false"),
    "float": ("0.1", "-0.25"),
    "double": ("0.1", "-1e-300"),
    "decimal(20,5)": ("-123456789012345.00001", "0.5"),
    "decimal(9,0)": ("999999999", "0"),
    "decimal(5,2) unsigned": ("999.99", "0.01"),
    "bit(1)": ("1", "0"),
    "bit(5)": ("b'10101'", "b'00001'"),
    "bit(20)": ("b'10000000000000000011'", "b'11'"),
    "char(5)": ("'ab'", "''"),
    "varchar(300)": ("'ünï \\\"quoted\\\" \\\\ 汉字'", "''"),
    "varchar(20) character set latin1": ("'ä€'", "''"),
    "text": ("'line\\nbreak\\ttab'", "'%s %b'"),
    "mediumtext": ("'medium'", "''"),
    "enum('a','b, c')": ("'b, c'", "'a'"),
    "set('x','y','z')": ("'x,z'", "''"),
    "json": ('\'{"a": [1, null],  "b":2}\'', "'[]'"),
    "binary(4)": ("x'00ff'", "''"),
    "varbinary(10)": ("x'00ff10fbff'", "''"),
    "blob": ("x'0001fbff'", "''"),
    "date": ("'2024-02-29'", "'1969-12-31'"),
    "time": ("'23:59:59'", "'00:00:00'"),
    "time(3)": ("'01:02:03.004'", "'00:00:01'"),
    "time(6)": ("'23:59:59.999999'", "'00:00:00.5'"),
    "datetime": ("'2024-01-02 03:04:05'", "'1969-12-31 23:59:59'"),
    "datetime(3)": ("'2024-01-02 03:04:05.678'", "'1969-12-31 23:59:59.5'"),
    "datetime(6)": ("'2024-01-02 03:04:05.678901'", "'9999-12-31 23:59:59'"),
    "timestamp": ("'2024-01-02 03:04:05'", "'1970-01-02 00:00:00'"),
    "timestamp(3)": ("'2024-01-02 03:04:05.670'", "'2024-07-01 00:00:00'"),
    "timestamp(6)": ("'2024-01-02 03:04:05.000006'", "'2037-12-31 23:59:59.999999'"),
    "year": ("2024", "1901"),
    "point": ("PointFromText('POINT(1.5 -2)')", "PointFromText('POINT(0 0)')"),
    "geometry": ("PointFromText('POINT(3 4)')", "ST_GeomFromText('LINESTRING(0 0,1 1)')"),
    "polygon": ("PolygonFromText('POLYGON((0 0,0 1,1 1,0 0))')", "NULL"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'12345678-1234-1abc-8def-123456789abc'"),
}
# Values at which types end. They stand apart, each as a type of its own.
EXTREMES: dict[str, tuple[str, str]] = {
    "bigint unsigned beyond 63 bits": ("bigint unsigned", "18446744073709551615"),
    "bit(20) zero": ("bit(20)", "0"),
    "date zero": ("date", "'0000-00-00'"),
    "date with month zero": ("date", "'2024-00-10'"),
    "date of year 1000": ("date", "'1000-01-01'"),
    "datetime zero": ("datetime", "'0000-00-00 00:00:00'"),
    "datetime of year 1000": ("datetime", "'1000-01-01 00:00:00'"),
    "datetime(6) last": ("datetime(6)", "'9999-12-31 23:59:59.999999'"),
    "timestamp zero": ("timestamp null", "0"),
    "time negative": ("time", "'-838:59:59'"),
    "time long": ("time(3)", "'838:59:58.999'"),
    "time slightly negative": ("time(6)", "'-00:00:00.500001'"),
    "enum invalid": ("enum('a')", "''"),
    "float of 9 digits": ("float", "16777.217"),
    "double large": ("double", "1.7976931348623157e308"),
}


def _column(start: str, label: str) -> str:
    return start + re.sub(r"\W+", "_", label.lower()).strip("_")


COLUMNS = {_column("c_", type_): type_ for type_ in TYPES}
EXTREME_COLUMNS = {_column("e_", label): label for label in EXTREMES}
LABELS = {
    **{f"types.{name}": label for name, label in COLUMNS.items()},
    **{f"extremes.{name}": label for name, label in EXTREME_COLUMNS.items()},
}
"""What columns are called in the table of differences."""


def _create(table: str, columns: dict[str, str]) -> str:
    listed = ", ".join(
        f"{name} {type_}{'' if type_.endswith('null') else ' null'}"
        for name, type_ in columns.items()
    )
    return f"CREATE TABLE {table} (id int PRIMARY KEY, {listed})"


def _insert(row: int, key: int) -> str:
    return f"INSERT INTO types VALUES ({key}, {', '.join(each[row] for each in TYPES.values())})"


EXTREME_ROW = f"INSERT INTO extremes VALUES (%d, {', '.join(v for _, v in EXTREMES.values())})"
SESSION = "SET sql_mode = '', time_zone = '+00:00', unique_checks = 1"

BEFORE: tuple[str, ...] = (
    SESSION,
    _create("types", COLUMNS),
    _create("extremes", {name: EXTREMES[label][0] for name, label in EXTREME_COLUMNS.items()}),
    "CREATE TABLE pairs (b varchar(10), a int, note text, PRIMARY KEY (a, b))",
    "CREATE TABLE whole (id int PRIMARY KEY, note text, amount decimal(8,2))",
    "CREATE TABLE keyless (a int, note text)",
    "CREATE TABLE by_code (id int PRIMARY KEY, code varchar(9) NOT NULL UNIQUE, note text)",
    "CREATE TABLE unique_only (code varchar(9) NOT NULL UNIQUE, note text)",
    "CREATE TABLE unique_null (code varchar(9) UNIQUE, note text)",
    "CREATE TABLE `Odd Name` (`Id` int PRIMARY KEY, `a column` text, `quote'd` text)",
    "CREATE TABLE defaults (id int AUTO_INCREMENT PRIMARY KEY, n int NOT NULL DEFAULT 5,"
    " s varchar(9) NOT NULL, g int AS (n + 1) STORED, v int AS (n + 2) VIRTUAL)",
    "CREATE TABLE empty (id int PRIMARY KEY)",
    _insert(0, 1),
    _insert(1, 2),
    "INSERT INTO types (id) VALUES (3)",
    EXTREME_ROW % 1,
    "INSERT INTO pairs VALUES ('x', 1, 'one'), ('y', 1, NULL)",
    "INSERT INTO whole VALUES (1, 'a', 1.50), (2, NULL, NULL), (3, 'c', 3), (4, 'd', 4)",
    "INSERT INTO keyless VALUES (1, 'a'), (2, 'b')",
    "INSERT INTO by_code VALUES (1, 'one', 'a note'), (2, 'two', 'b')",
    "INSERT INTO unique_null VALUES ('one', 'a'), (NULL, 'b')",
    "INSERT INTO unique_only VALUES ('one', 'a'), ('two', 'b')",
    "INSERT INTO `Odd Name` VALUES (1, 'a', 'b')",
    "INSERT INTO defaults (id, n, s) VALUES (1, 1, 'a')",
)

AFTER: tuple[str, ...] = (
    SESSION,
    _insert(0, 11),
    _insert(1, 12),
    "INSERT INTO types (id) VALUES (13)",
    "UPDATE types SET c_text = 'changed', c_int = NULL WHERE id = 1",
    "DELETE FROM types WHERE id = 2",
    EXTREME_ROW % 2,
    "UPDATE pairs SET note = 'two' WHERE b = 'y'",
    "UPDATE pairs SET a = 2 WHERE b = 'x'",
    "DELETE FROM pairs WHERE b = 'y'",
    "UPDATE whole SET note = 'b' WHERE id = 1",
    "UPDATE whole SET id = 20 WHERE id = 2",
    "UPDATE whole SET amount = amount + 1 WHERE id IN (1, 3, 4)",
    "DELETE FROM whole WHERE id IN (3, 4)",
    "INSERT INTO whole VALUES (5, 'e', 5), (6, 'f', 6)",
    "REPLACE INTO whole VALUES (5, 'again', 5.5)",
    "INSERT INTO whole VALUES (6, 'g', 6) ON DUPLICATE KEY UPDATE note = 'h'",
    "INSERT INTO keyless VALUES (3, NULL)",
    "UPDATE keyless SET note = 'c' WHERE a = 1",
    "DELETE FROM keyless WHERE a = 2",
    "UPDATE by_code SET note = 'c' WHERE id = 1",
    "UPDATE by_code SET code = 'uno' WHERE id = 1",
    "UPDATE by_code SET id = 10 WHERE id = 1",
    "DELETE FROM by_code WHERE id = 2",
    "UPDATE unique_only SET code = 'uno' WHERE code = 'one'",
    "DELETE FROM unique_only WHERE code = 'two'",
    "UPDATE `Odd Name` SET `a column` = NULL",
    "DELETE FROM `Odd Name`",
    "INSERT INTO defaults (s) VALUES ('b')",
    "UPDATE defaults SET n = 7 WHERE id = 1",
    "DELETE FROM defaults WHERE id = 1",
    "BEGIN",
    "INSERT INTO whole VALUES (30, 'x', 0)",
    "UPDATE pairs SET note = NULL",
    "DELETE FROM whole WHERE id = 20",
    "INSERT INTO empty VALUES (1)",
    "COMMIT",
    "BEGIN",
    "INSERT INTO empty VALUES (2)",
    "ROLLBACK",
    "BEGIN",
    "INSERT INTO empty VALUES (3)",
    "SAVEPOINT s",
    "INSERT INTO empty VALUES (4)",
    "ROLLBACK TO s",
    "UPDATE empty SET id = 5 WHERE id = 3",
    "COMMIT",
    "ALTER TABLE whole ADD COLUMN added int DEFAULT 9",
    "INSERT INTO whole VALUES (31, 'new', 1, 2)",
    "ALTER TABLE whole DROP COLUMN amount",
    "UPDATE whole SET note = 'after' WHERE id = 1",
    "ALTER TABLE whole CHANGE COLUMN note remark text",
    "INSERT INTO whole VALUES (32, 'renamed', 3)",
    "TRUNCATE TABLE empty",
    "INSERT INTO empty VALUES (99)",
    "INSERT INTO empty VALUES (100)",
)
