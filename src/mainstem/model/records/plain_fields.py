"""The fields of values that are flat JSON objects, laid out for Spark: names, and variants.

A *variant* is Spark's and Parquet's binary form of a JSON value. The compiled ``_native`` knows
plain objects only: of scalars, without a name twice, without rare spellings. Promises: what it
accepts, Spark's own parser reads as the same names and the same variants; every other value has no
fields here, and so has every value where nothing was compiled, so that whoever asks has to be able
to parse by himself. A record with a field ``op``, as change events have it, is left to him too.
"""

from typing import Final, NamedTuple

from mainstem.model.records.columns import COMPILED, BinaryColumn, InputColumn

# The names that the objects inside a scalar's variant are made of: none.
NO_NAMES: Final = b"\x01\x00\x00"


class FieldColumns(NamedTuple):
    """Maps from names to variants; a row without fields of its own is not valid."""

    validity: bytes | None
    offsets: bytes
    names: BinaryColumn
    variants: BinaryColumn


def plain_fields(values: BinaryColumn, row_count: int) -> FieldColumns | None:
    """The fields of some values; None where this machine cannot tell."""
    if COMPILED is None:
        return None
    given = InputColumn(values.validity, values.offsets, values.data, 0, row_count)
    validity, offsets, names, variants = COMPILED.plain_fields(given)
    return FieldColumns(validity, offsets, BinaryColumn(*names), BinaryColumn(*variants))
