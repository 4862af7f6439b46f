"""Output as tables for people, JSON and YAML for programs.

Every command builds plain rows and leaves the form to this module, so that every command supports
``-o json`` with all columns of its table.
"""

import enum
import sys
from collections.abc import Mapping, Sequence

Row = Mapping[str, object]


class Output(enum.StrEnum):
    """The output formats."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def show_rows(rows: Sequence[Row], output: Output, *, columns: Sequence[str] = ()) -> None:
    """Print rows; ``columns`` names and orders those of the table, all by default."""
    if output is Output.TABLE:
        _print_table(rows, columns or list(rows[0]) if rows else columns)
    else:
        _print_document(list(rows), output)


def show_one(row: Row, output: Output) -> None:
    """Print one object: two columns, name and value, in the table form."""
    if output is Output.TABLE:
        _print_table([{"": name, " ": value} for name, value in row.items()], ["", " "])
    else:
        _print_document(dict(row), output)


def show_confirmation(sentence: str, row: Row, output: Output) -> None:
    """Confirm a change: a sentence for people, the object for programs."""
    if output is Output.TABLE:
        print(sentence)
    else:
        _print_document(dict(row), output)


def _print_document(document: object, output: Output) -> None:
    if output is Output.JSON:
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
        print(text)
    else:
        import yaml

        yaml.safe_dump(document, sys.stdout, sort_keys=False, allow_unicode=True)


def _print_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    if not columns:
        return
    if not sys.stdout.isatty():
        _print_plain(rows, columns)
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_header=any(c.strip() for c in columns))
    for column in columns:
        numbers = bool(rows) and all(isinstance(row.get(column), int | float) for row in rows)
        table.add_column(_heading(column), justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*(cell(row.get(column)) for column in columns))
    Console(markup=False, highlight=False).print(table)


def _print_plain(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Aligned columns without decoration or wrapping, suitable for grep, awk and diff."""
    lines = [[cell(row.get(column)) for column in columns] for row in rows]
    if any(column.strip() for column in columns):
        lines.insert(0, [_heading(column) for column in columns])
    widths = [max((len(line[i]) for line in lines), default=0) for i in range(len(columns))]
    for line in lines:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def _heading(column: str) -> str:
    return column.replace("_", " ").upper()


def cell(value: object) -> str:
    """One value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={cell(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(cell(inner) for inner in value)
    return str(value).replace("\n", "\\n")
