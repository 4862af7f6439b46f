"""The judges of the kills see what they must: loss, doubling, disorder, impossible changes."""

import json
from typing import Any

import pytest
from tests.chaos_pipelines import databases, sinks

from mainstem.client.values import ConsumerRecord

PUT = [sinks.value_of(number) for number in range(200)]


def verdict(held: list[bytes], *, is_ordered: bool = True) -> list[str]:
    sink = sinks.SinkUnderTest("any", {}, (), lambda: held, is_ordered)
    return sinks.anomalies_of("any", sink, PUT)


def test_a_sink_that_holds_the_input_is_right() -> None:
    assert verdict(list(PUT)) == []
    assert verdict(PUT[::-1], is_ordered=False) == []


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (PUT[:-1], "1 missing, 0 too many"),
        ([*PUT, PUT[7]], "0 missing, 1 too many"),
        ([*PUT[:-1], PUT[7]], "1 missing, 1 too many"),
        ([], "200 missing"),
        (PUT[::-1], "out of order"),
    ],
)
def test_a_sink_that_lost_doubled_or_shuffled_records_is_wrong(
    held: list[bytes], said: str
) -> None:
    assert said in " ".join(verdict(held))


class Table:
    """A database that holds these rows."""

    name, connector, upsert, move = "table", "", "", ""

    def __init__(self, *rows: tuple[Any, ...]) -> None:
        self._rows = rows

    def prepare(self) -> None:
        """It is there."""

    def config(self) -> dict[str, object]:
        return {}

    def place(self, event: dict[str, Any]) -> tuple[Any, ...]:
        return (event["at"],)

    def connect(self) -> Any:
        return self

    def cursor(self) -> Any:
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *problem: object) -> None:
        """Nothing was opened."""

    def execute(self, statement: str) -> None:
        """There is one thing to ask."""

    def fetchall(self) -> tuple[tuple[Any, ...], ...]:
        return self._rows


def event(key: int, op: str, at: int, amount: int = 1) -> ConsumerRecord:
    after = None if op == "d" else {"id": key, "customer": "c", "amount": amount}
    value = json.dumps({"op": op, "at": at, "after": after}).encode()
    return ConsumerRecord("t", 0, at, 0, json.dumps({"id": key}).encode(), value)


HISTORY = [event(1, "r", 0), event(2, "r", 0), event(1, "u", 5, 7), event(2, "d", 6)]


def test_a_topic_that_leads_to_the_table_is_right() -> None:
    assert databases.anomalies_of(Table((1, "c", 7)), HISTORY) == []


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (HISTORY[:-1], "rows differ"),
        ([*HISTORY, event(1, "u", 5, 7)], "told 2 times"),
        ([HISTORY[2], *HISTORY[:2], HISTORY[3]], "out of order"),
        ([HISTORY[0], HISTORY[2], HISTORY[3]], "a row went that never came"),
        ([*HISTORY, event(2, "u", 9)], "impossible"),
        ([HISTORY[0], *HISTORY], "twice in the snapshot"),
    ],
)
def test_a_topic_that_tells_another_story_is_wrong(told: list[ConsumerRecord], said: str) -> None:
    assert said in " ".join(databases.anomalies_of(Table((1, "c", 7)), told))
