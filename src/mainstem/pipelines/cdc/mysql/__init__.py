"""Change data capture from MySQL and MariaDB: binary log, snapshots, values, Spark source."""
