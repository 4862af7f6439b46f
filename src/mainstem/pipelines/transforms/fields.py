"""Operations on the fields of a record, as Spark expressions.

A record's fields are a ``map<string, variant>``: names in their order, each with a JSON value of
any type. For the reasons, see ``docs/decisions/0009``.

Guarantees: no Python runs per record, and unusual data raises nothing; a null map stays null; a
value that is JSON's null is a variant null, never SQL's, so that a field that is null differs from
one that is absent.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F

from mainstem.pipelines.connector.wire import FIELDS_TYPE
from mainstem.pipelines.transforms.paths import FieldPath, parse_path

Change = Callable[[Column], Column]
"""Maps the value of a field, a variant, to its new value."""


def true() -> Column:
    """SQL's true."""
    return F.lit(True)  # noqa: FBT003


def false() -> Column:
    """SQL's false."""
    return F.lit(False)  # noqa: FBT003


def json_null() -> Column:
    """JSON's null."""
    return F.parse_json(F.lit("null"))


def constant(value: Any) -> Column:
    """A value of a pipeline file as a variant."""
    return F.parse_json(F.lit(msgspec.json.encode(value).decode()))


def variant(value: Column) -> Column:
    """A plain column as a variant; SQL's null becomes JSON's."""
    return F.coalesce(value.cast("variant"), json_null())


def value_at(fields: Column, name: str) -> Column:
    """The value of a field as a variant; SQL's null if it is absent."""
    return _below(fields[parse_path(name).top], parse_path(name))


def has(fields: Column, name: str) -> Column:
    """Whether the record has the field; false if there is no record."""
    path = parse_path(name)
    if path.rest is None:
        return F.coalesce(F.map_contains_key(fields, path.top), false())
    return value_at(fields, name).isNotNull()


def is_empty(value: Column) -> Column:
    """Whether a value is absent or JSON's null."""
    return value.isNull() | F.is_variant_null(value)


def text(value: Column) -> Column:
    """A value as text: a string unquoted, everything else as JSON; null for null."""
    return value.cast("string")


def as_fields(value: Column) -> Column:
    """The fields of a value that is an object; null for every other value."""
    return F.try_variant_get(value, "$", FIELDS_TYPE)


def is_string(value: Column) -> Column:
    """Whether a value is a JSON string."""
    return F.schema_of_variant(value) == "STRING"


def edit(fields: Column, changes: Mapping[str, Change]) -> Column:
    """Changes the values of existing fields; other fields are unchanged."""
    by_top: dict[str, list[tuple[FieldPath, Change]]] = {}
    for name, change in changes.items():
        path = parse_path(name)
        by_top.setdefault(path.top, []).append((path, change))

    def changed(key: Column, value: Column) -> Column:
        chosen: Column | None = None
        for top, edits in by_top.items():
            new = value
            for path, change in edits:
                new = _edited(new, path, change)
            chosen = (F if chosen is None else chosen).when(key == top, new)
        assert chosen is not None, "at least one change"
        return chosen.otherwise(value)

    return F.transform_values(fields, changed)


def put(fields: Column, name: str, value: Column) -> Column:
    """Sets a field: in its position if the record has it, else as the last.

    Missing parent objects are created. If the path leads through a value that is not an object or
    array, the result is null; ``leads_nowhere`` checks for that.
    """
    path = parse_path(name)
    value = F.coalesce(value, json_null())
    if path.rest is None:
        fresh, inside = value, value
    else:
        there = fields[path.top]
        fresh = F.try_variant_set(constant({}), F.lit(path.rest), value)
        inside = F.when(is_empty(there), fresh).otherwise(
            F.try_variant_set(there, F.lit(path.rest), value)
        )
    return F.when(
        F.map_contains_key(fields, path.top),
        F.transform_values(fields, lambda key, old: F.when(key == path.top, inside).otherwise(old)),
    ).otherwise(F.map_concat(fields, F.create_map(F.lit(path.top), fresh)))


def leads_nowhere(fields: Column, name: str) -> Column:
    """Whether ``put`` would have to turn a scalar into an object."""
    path = parse_path(name)
    if path.rest is None:
        return false()
    there = fields[path.top]
    unreachable = F.try_variant_set(there, F.lit(path.rest), constant(0)).isNull()
    return F.coalesce(~is_empty(there) & unreachable, false())


def remove(fields: Column, names: Iterable[str]) -> Column:
    """Removes fields."""
    paths = [parse_path(name) for name in names]
    tops = [path.top for path in paths if path.rest is None]
    inner = [path for path in paths if path.rest is not None]
    if tops:
        fields = F.map_filter(fields, lambda key, _: ~key.isin(tops))
    if not inner:
        return fields

    def pruned(key: Column, value: Column) -> Column:
        for path in inner:
            without = F.variant_delete(value, F.lit(path.rest))
            value = F.when((key == path.top) & as_container(value), without).otherwise(value)
        return value

    return F.transform_values(fields, pruned)


def keep(fields: Column, names: Iterable[str]) -> Column:
    """Removes every field except these; of a nested name, its siblings too."""
    paths = [parse_path(name) for name in names]
    tops = [path.top for path in paths]
    whole = {path.top for path in paths if path.rest is None}
    kept = F.map_filter(fields, lambda key, _: key.isin(tops))
    partial = [path for path in paths if path.top not in whole]

    def pruned(key: Column, value: Column) -> Column:
        chosen: Column | None = None
        for top in dict.fromkeys(path.top for path in partial):
            built = constant({})
            for path in partial:
                if path.top == top:
                    inner = _below(value, path)
                    added = F.try_variant_set(built, F.lit(path.rest), inner)
                    built = F.when(inner.isNull(), built).otherwise(F.coalesce(added, built))
            chosen = (F if chosen is None else chosen).when(key == top, built)
        return value if chosen is None else chosen.otherwise(value)

    return F.transform_values(kept, pruned) if partial else kept


def merge(fields: Column, more: Column) -> Column:
    """The fields of both, those of ``more`` last; of duplicate names, only that of ``more``."""
    return F.map_concat(
        F.map_filter(fields, lambda key, _: ~F.map_contains_key(more, key)),
        more,
    )


def as_container(value: Column) -> Column:
    """Whether a value is an object or an array."""
    return F.coalesce(F.to_json(value).rlike(r"^[\[{]"), false())


def _below(value: Column, path: FieldPath) -> Column:
    return value if path.rest is None else F.try_variant_get(value, path.rest, "variant")


def _edited(value: Column, path: FieldPath, change: Change) -> Column:
    if path.rest is None:
        return F.coalesce(change(value), json_null())
    inner = _below(value, path)
    new = F.try_variant_set(value, F.lit(path.rest), F.coalesce(change(inner), json_null()))
    return F.when(inner.isNotNull(), F.coalesce(new, value)).otherwise(value)
