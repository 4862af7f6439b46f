"""Change data capture from PostgreSQL: replication slot, snapshots, values, Spark source."""
