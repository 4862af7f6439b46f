"""What the checkers looked at: for every kind of anomaly, how many operations could have shown it.

A rule that finds nothing because there was nothing to look at shows as a zero here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tests.chaos import history as log
from tests.chaos import transaction_history as transactions
from tests.chaos.catalogue_history import CatalogueHistory, CatalogueKind, check_subject
from tests.chaos.history import Anomaly, History, Outcome
from tests.chaos.queue_history import Delivered, Promise, QueueHistory, QueueKind, check_queue
from tests.chaos.transaction_ops import Fate, TransactionHistory, Wish

KAFKA = "Kafka"
TRANSACTIONS = "Kafka transactions"


@dataclass(frozen=True, slots=True)
class Checked:
    """One kind of history: how many operations each rule looked at, and the anomalies it found."""

    name: str
    operations: Mapping[StrEnum, int | None]  # None where a rule does not apply
    anomalies: list[Anomaly] = field(default_factory=list)

    @property
    def found(self) -> Counter[StrEnum]:
        """How many anomalies there are of each kind."""
        return Counter(anomaly.kind for anomaly in self.anomalies)


def check_log(history: History, once: Iterable[str]) -> Checked:
    """Judge what Kafka clients saw."""
    names = frozenset(once)
    return Checked(KAFKA, log_operations(history, names), log.check(history, once=names))


def log_operations(history: History, once: frozenset[str]) -> dict[StrEnum, int | None]:
    """Operations by kind of anomaly, for the history of a log."""
    acknowledged = [one for one in history.sent if one.outcome is Outcome.OK]
    placed = sum(one.offset is not None for one in acknowledged)
    reads, final = len(history.reads), sum(len(records) for records in history.final.values())
    kind = log.Kind
    return {
        kind.LOST: len(acknowledged),
        kind.VANISHED: reads,
        kind.DUPLICATE: sum(one.producer in once for one in history.sent),
        kind.DIVERGENT: placed + reads + final,
        kind.MOVED: placed,
        kind.PHANTOM: reads + final,
        kind.REFUSED_READ: reads + final,
        kind.BACKWARD: reads + final,
        kind.SKIPPED: reads,
        kind.REORDERED: sum(one.producer in once for one in acknowledged),
        kind.INVERTED: placed,
        kind.RESUMED_ELSEWHERE: len(history.resumed),
        kind.STALE: len(history.ends),
    }


def check_transactions(history: TransactionHistory, anomalies: list[Anomaly]) -> list[Checked]:
    """What was judged of transactions, as logs and as transactions."""
    own = [anomaly for anomaly in anomalies if isinstance(anomaly.kind, transactions.Kind)]
    others = [anomaly for anomaly in anomalies if not isinstance(anomaly.kind, transactions.Kind)]
    sends = [send for one in history.transactions for send in one.sends]
    producers = frozenset(one.producer for one in history.transactions)
    plain = History(
        sent=[
            log.Sent(one.producer, send.stream, send.value, send.started, send.outcome, send.offset)
            for one in history.transactions
            if one.fate is Fate.COMMITTED
            for send in one.sends
        ],
        reads=list(history.reads),
        final=history.final,
    )
    final = sum(len(records) for records in history.final.values())
    inputs = sum(len(one.inputs) for one in history.transactions)
    stable = sum(len(snapshot.stable) for snapshot in history.snapshots)
    commits = sum(one.wish is Wish.COMMIT for one in history.transactions)
    kind = transactions.Kind
    counts: dict[StrEnum, int | None] = {
        kind.ABORTED_READ: len(history.reads) + final,
        kind.DELAYED_END: len(history.reads) + final,
        kind.PRECOMMITTED: len(history.reads),
        kind.TORN: len(history.transactions),
        kind.SPLIT: stable,
        kind.UNSTABLE: stable,
        kind.APPEARED: final,
        kind.FENCED_COMMIT: commits,
        kind.FENCED_SEND: len(sends),
        kind.OVERTAKEN: final,
        kind.CYCLE: inputs,
        kind.ABORTED_POSITION: len(history.observed),
        kind.PRECOMMITTED_POSITION: len(history.observed),
        kind.FOREIGN_POSITION: len(history.observed),
        kind.BEYOND: len(history.observed),
        kind.LOST_POSITION: len(history.observed),
        kind.PROCESSED_TWICE: inputs,
        kind.UNPROCESSED: inputs,
        kind.HANGING: len(history.ends),
    }
    # Reads of refused records are aborted reads here; the others need clients that are not there.
    without = dict.fromkeys(
        (log.Kind.REFUSED_READ, log.Kind.RESUMED_ELSEWHERE, log.Kind.STALE), None
    )
    operations = log_operations(plain, producers) | without
    records = Checked(f"{TRANSACTIONS}, their records", operations, others)
    return [Checked(TRANSACTIONS, counts, own), records]


def check_messages(history: QueueHistory, promise: Promise) -> Checked:
    """Judge what clients of one queue or of one MQTT topic saw."""
    confirmed = sum(one.outcome is Outcome.OK for one in history.published)
    first = len({event.value for event in history.events if isinstance(event, Delivered)})
    kind = QueueKind
    counts: dict[StrEnum, int | None] = {
        kind.LOST: confirmed,
        kind.AFTER_ACK: history.settled,
        kind.DOUBLED: history.delivered if promise.exactly_once else None,
        kind.UNMARKED: history.delivered_again if promise.marks_redelivery else None,
        kind.PHANTOM: history.delivered,
        kind.REFUSED: history.delivered,
        kind.REORDERED: first,
    }
    return Checked(history.kind, counts, check_queue(history, promise))


def check_catalogue(histories: Iterable[CatalogueHistory]) -> list[Checked]:
    """Judge what became of commands to the catalogue, by kind of subject."""
    by_kind: dict[str, list[CatalogueHistory]] = {}
    for history in histories:
        by_kind.setdefault(history.kind, []).append(history)
    return [
        Checked(
            f"catalogue: {kind}",
            {
                CatalogueKind.WRONG_STATE: sum(one.final is not None for one in subjects),
                CatalogueKind.FALSE_REFUSAL: sum(len(one.commands) for one in subjects),
            },
            [anomaly for one in subjects for anomaly in check_subject(one)],
        )
        for kind, subjects in by_kind.items()
    ]
