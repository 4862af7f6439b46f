"""The fields of values that are flat JSON objects, laid out for Spark: names, and variants.

A *variant* is Spark's and Parquet's binary form of a JSON value. The compiled ``_native`` knows
plain objects only: of scalars, without duplicate names, without rare spellings. Guarantee: what it
accepts, Spark's own parser reads as the same names and the same variants. Every other value has no
fields here, nor has any value where nothing was compiled: the caller has to parse those itself, and
also records with a field ``op``, as change events have it.
"""

from typing import Final, NamedTuple

from mainstem.model.records.columns import COMPILED, BinaryColumn, InputColumn

# The metadata of a scalar's variant: no names.
NO_NAMES: Final = b"\x01\x00\x00"


class FieldColumns(NamedTuple):
    """Maps from names to variants; a row without fields of its own is not valid."""

    validity: bytes | None
    offsets: bytes
    names: BinaryColumn
    variants: BinaryColumn


def plain_fields(values: BinaryColumn, row_count: int) -> FieldColumns | None:
    """The fields of some values; None without the compiled module."""
    if COMPILED is None:
        return None
    given = InputColumn(values.validity, values.offsets, values.data, 0, row_count)
    validity, offsets, names, variants = COMPILED.plain_fields(given)
    return FieldColumns(validity, offsets, BinaryColumn(*names), BinaryColumn(*variants))
