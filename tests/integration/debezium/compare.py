"""Two tellings of the same changes, event by event, and the differences that the docs admit.

``docs/guides/cdc.md`` has a table of differences from Debezium. It is the only list of
exceptions: what is not in it fails, and so does a row of it that nothing differs by any more.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from tests.integration.debezium.capture import Event

DOCS = Path(__file__).parents[3] / "docs" / "guides" / "cdc.md"
HEADING = "| Database | Phase | Field | Debezium | Mainstem |"
ABSENT = "(absent)"
SNAPSHOT, STREAM = "snapshot", "stream"


class Difference(Struct, frozen=True):
    """A field that is not the same; ``event`` names the event for whoever reads the failure."""

    phase: str
    field: str
    ours: Any
    theirs: Any
    event: str


class Admitted(Struct, frozen=True):
    """A row of the table of differences."""

    databases: str
    phases: str
    fields: tuple[str, ...]

    def covers(self, database: str, difference: Difference) -> bool:
        return (
            database in self.databases
            and difference.phase in self.phases
            and any(_fits(difference.field, pattern) for pattern in self.fields)
        )


def _fits(field: str, pattern: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), field) is not None


def admitted() -> list[Admitted]:
    """What the docs admit."""
    lines = DOCS.read_text().split("\n")
    start = lines.index(HEADING) + 2
    found = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        database, phase, fields, *_ = (cell.strip() for cell in line.strip("|").split("|"))
        found.append(Admitted(database, phase, tuple(re.findall(r"`([^`]+)`", fields))))
    return found


def check(database: str, found: Sequence[Difference]) -> None:
    """Everything that differs is admitted, and everything that is admitted differs.

    Raises:
        AssertionError: one of the two is not so.
    """
    rows = [row for row in admitted() if database in row.databases]
    unknown = [each for each in found if not any(row.covers(database, each) for row in rows)]
    assert not unknown, "\n".join(map(_shown, unknown))
    idle = [
        (phase, pattern)
        for row in rows
        for phase in (SNAPSHOT, STREAM)
        if phase in row.phases
        for pattern in row.fields
        if not any(each.phase == phase and _fits(each.field, pattern) for each in found)
    ]
    assert not idle, f"docs/guides/cdc.md tells of differences that are gone: {idle}"


def _shown(each: Difference) -> str:
    pair = f"{json.dumps(each.ours)[:200]} is not Debezium's {json.dumps(each.theirs)[:200]}"
    return f"{each.phase} {each.field}: {pair} ({each.event})"


def differences(
    ours: Sequence[Event], theirs: Sequence[Event], labels: Mapping[str, str]
) -> Iterator[Difference]:
    """Snapshot rows by their keys, changes in their order. ``labels`` names columns by types."""
    for phase in (SNAPSHOT, STREAM):
        one, other = _of(phase, ours), _of(phase, theirs)
        matcher = difflib.SequenceMatcher(
            None, [_signature(each) for each in one], [_signature(each) for each in other], False
        )
        ended = {_transaction(each) for each in other if _op(each) == "END"}
        for tag, i, i_until, j, j_until in matcher.get_opcodes():
            if tag == "equal":
                for mine, yours in zip(one[i:i_until], other[j:j_until], strict=True):
                    for field, a, b in _fields(mine, yours, labels):
                        yield Difference(phase, field, a, b, _signature(mine))
                continue
            for each in one[i:i_until]:
                yield Difference(phase, _record(each, ended), "told", ABSENT, _signature(each))
            for each in other[j:j_until]:
                yield Difference(phase, _record(each, ended), ABSENT, "told", _signature(each))


def _of(phase: str, events: Sequence[Event]) -> list[Event]:
    chosen = [each for each in events if (_op(each) == "r") == (phase == SNAPSHOT)]
    if phase == STREAM:
        return chosen
    # Which row of a table comes first is nobody's promise.
    return sorted(chosen, key=lambda each: (_signature(each), json.dumps(each["value"]["after"])))


def _op(event: Event) -> str:
    value = event["value"]
    if value is None:
        return "tombstone"
    told: str = value.get("op") or value.get("status") or "other"
    return told


def _signature(event: Event) -> str:
    key = event["key"]
    if event["topic"].endswith(".transaction"):
        key = _transaction(event)
    return f"{event['topic']} {_op(event)} {json.dumps(key, sort_keys=True)}"


def _table(event: Event) -> str:
    name: str = event["topic"].rpartition(".")[2]
    return name


def _transaction(event: Event) -> str:
    name: str = event["key"]["id"]
    return name.partition(":")[0]


def _record(event: Event, ended: set[str]) -> str:
    """A whole record, as the table of differences calls it."""
    name = f"record.{_table(event)}.{_op(event)}"
    if _table(event) == "transaction" and _transaction(event) not in ended:
        return f"{name} of a change of schema"
    return name


def _fields(mine: Event, yours: Event, labels: Mapping[str, str]) -> Iterator[tuple[str, Any, Any]]:
    table = _table(mine)
    kind = f"{table}:" if table in {"message", "transaction"} else ""
    for path, a, b in _walk(_sorted(mine), _sorted(yours), ()):
        part = path[1:] if path[0] == "value" else path
        if part and part[0] in {"before", "after"} and len(part) > 1:
            column = f"{table}.{part[1]}"
            yield f"row.{labels.get(column, column)}", a, b
        else:
            yield kind + ".".join(part) + _circumstance(part, b), a, b


def _circumstance(field: Sequence[str], theirs: Any) -> str:
    """Some fields differ in one kind of event only; elsewhere they are not excused."""
    told = json.dumps(theirs)
    if field[-1] == "sequence" and told.startswith('"[null,'):
        return " of the first transaction"
    if field[-1] == "id" and told.endswith(':0"'):
        return " of a transaction with an origin"
    if field[-1] == "data_collections" and "LogicalDecodingMessage" in told:
        return " of a transaction with a message"
    return ""


def _sorted(event: Event) -> Event:
    """A transaction names its tables in no particular order."""
    listed = (event["value"] or {}).get("data_collections")
    if not listed:
        return event
    by_name = sorted(listed, key=lambda each: str(each["data_collection"]))
    return {**event, "value": {**event["value"], "data_collections": by_name}}


def _walk(a: Any, b: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(a, dict) and isinstance(b, dict):
        for name in {**a, **b}:
            yield from _walk(a.get(name, ABSENT), b.get(name, ABSENT), (*path, name))
    elif a != b or type(a) is not type(b):
        yield path, a, b
