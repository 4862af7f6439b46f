"""Transaction metadata of events: boundaries, and each event's number within. Pure."""

import msgspec

from mainstem.pipelines.cdc.envelope import NULL, ChangeRecord


class TransactionCounter:
    """Counts the events of one transaction after the other; inactive unless ``is_included``."""

    def __init__(self, *, is_included: bool) -> None:
        self.is_included = is_included
        self._counts: dict[str, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether the transaction has no events yet."""
        return not self._counts

    def begin(self) -> None:
        """Start the next transaction."""
        self._counts = {}

    def order(self, table: str, name: str) -> bytes:
        """The ``transaction`` of a table's next event."""
        if not self.is_included:
            return NULL
        counts = self._counts
        counts[table] = counts.get(table, 0) + 1
        return b'{"id":%b,"total_order":%d,"data_collection_order":%d}' % (
            msgspec.json.encode(name),
            sum(counts.values()),
            counts[table],
        )

    def boundary(self, status: str, name: str, at_us: int) -> list[ChangeRecord]:
        """The record of a BEGIN or END, if transaction metadata is enabled."""
        if not self.is_included:
            return []
        is_end = status == "END"
        counts = [
            {"data_collection": table, "event_count": count}
            for table, count in self._counts.items()
        ]
        boundary = {
            "status": status,
            "id": name,
            "event_count": sum(self._counts.values()) if is_end else None,
            "data_collections": counts if is_end else None,
            "ts_ms": at_us // 1000,
        }
        key = msgspec.json.encode({"id": name})
        return [ChangeRecord(None, key, msgspec.json.encode(boundary), at_us)]
