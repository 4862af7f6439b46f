"""One version of one message, resolved from the schema table.

The table stores each field once with its version ranges; a ``StructPlan`` lists the fields of one
version. The compilers of ``decoder`` and ``encoder`` walk it once and emit flat code.
"""

import importlib
import struct
from typing import Any, NamedTuple

import msgspec

from mainstem.wire.kafka.table import APIS, DATA

# Wire type to struct format. A uuid is 16 raw bytes, so it joins a run of fixed fields.
FIXED: dict[str, str] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "uuid": "16s",
}


class FieldPlan(NamedTuple):
    """One field as one version has it."""

    name: str
    kind: str  # wire type of the field or of its elements; "struct" when nested is set
    nested: "StructPlan | None"
    default: Any
    tag: int  # -1: not tagged
    is_present: bool
    is_array: bool
    is_nullable: bool

    @property
    def is_fixed(self) -> bool:
        """Whether the field may join a run of fixed-size fields."""
        return not self.is_array and self.kind in FIXED


class StructPlan(NamedTuple):
    """One struct as one version has it; absent fields are listed too, with their defaults."""

    cls: type[msgspec.Struct]
    fields: tuple[FieldPlan, ...]
    is_flexible: bool

    @property
    def ordinary(self) -> list[FieldPlan]:
        """The untagged fields, in the order of the wire format."""
        return [field for field in self.fields if field.is_present and field.tag < 0]

    @property
    def tagged(self) -> list[FieldPlan]:
        """The tagged fields, by tag."""
        present = [field for field in self.fields if field.is_present and field.tag >= 0]
        return sorted(present, key=lambda field: field.tag)


def load_api(api_key: int, version: int, *, is_request: bool) -> StructPlan:
    """The plan of a request or response; ``LookupError`` if it is not in the table."""
    row = APIS[api_key]
    return _load(row, row[5] if is_request else row[6], version)


def load_data(name: str, version: int) -> StructPlan:
    """The plan of a message that is embedded in others; ``LookupError`` if unknown."""
    row = DATA[name]
    return _load(row, row[5], version)


def _load(row: tuple[Any, ...], structs: tuple[Any, ...], version: int) -> StructPlan:
    name, module_name, first, last, flexible_since = row[:5]
    if not first <= version <= last:
        raise LookupError(f"{name} has versions {first} to {last}, not {version}")
    module = importlib.import_module(f"mainstem.wire.kafka.messages.{module_name}")
    plans: dict[str, StructPlan] = {}
    plan = None
    for class_name, fields in structs:
        plan = StructPlan(
            cls=getattr(module, class_name),
            fields=tuple(_field(field, plans, version) for field in fields),
            is_flexible=version >= flexible_since,
        )
        plans[class_name] = plan
    assert plan is not None, "a message has at least its own struct"
    return plan


def _field(row: tuple[Any, ...], plans: dict[str, StructPlan], version: int) -> FieldPlan:
    name, wire_type, since, last, nullable_since, tag, tagged_since, default = row
    element = wire_type.removeprefix("[]")
    return FieldPlan(
        name=name,
        kind="struct" if element in plans else element,
        nested=plans.get(element),
        default=default,
        tag=tag if 0 <= tagged_since <= version else -1,
        is_present=since <= version <= last,
        is_array=wire_type.startswith("[]"),
        is_nullable=0 <= nullable_since <= version,
    )


def bytes_min(field: FieldPlan, *, is_flexible: bool, as_element: bool = False) -> int:
    """The fewest bytes a field, or an element of an array field, can take."""
    if field.is_array and not as_element:
        return 1 if is_flexible else 4
    if field.nested is not None:
        return 1 if field.is_nullable and not as_element else struct_bytes_min(field.nested)
    if field.kind in FIXED:
        return struct.calcsize(">" + FIXED[field.kind])
    if is_flexible:
        return 1
    return 2 if field.kind == "string" else 4


def struct_bytes_min(plan: StructPlan) -> int:
    """The fewest bytes a struct can take."""
    total = sum(bytes_min(field, is_flexible=plan.is_flexible) for field in plan.ordinary)
    return total + 1 if plan.is_flexible else total
