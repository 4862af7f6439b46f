"""Compiles the decoder of one message version: one flat function, no recursion, no dispatch.

The function takes (buffer, position, end, elements_max) and returns (message, position). Reading
past ``end`` is detected by the caller, which compares the final position with the end: positions
only grow, so a field that reads beyond its message leaves the position beyond it too. Lengths are
checked before slicing, and the count of an array before its first element: the elements cannot be
more than the bytes left allow, nor more than ``elements_max`` over the whole message.

Names in the generated code: b buffer, m its memoryview, p position, q end of a slice, E end,
n a count, k elements so far, K their limit.
"""

import struct
from collections.abc import Callable
from typing import Any

from mainstem.wire.kafka.primitives import Malformed, decode_uvarint
from mainstem.wire.kafka.schema import FIXED, FieldPlan, StructPlan, bytes_min
from mainstem.wire.kafka.source import Source

Decoder = Callable[[Any, int, int, int], tuple[Any, int]]


def compile_decoder(plan: StructPlan) -> Decoder:
    """The decoder of one message version."""
    source = Source(
        {
            "Malformed": Malformed,
            "uvarint": decode_uvarint,
            "unpack_from": struct.unpack_from,
            "ZERO_UUID": bytes(16),
        }
    )
    source.line(0, "def decode(b, p, E, K):")
    source.line(1, "k = 0")
    if _holds_records(plan):
        source.line(1, "m = memoryview(b)")
    _struct(source, 1, plan, "message")
    source.line(1, "return message, p")
    decoder: Decoder = source.function("decode")
    return decoder


def _holds_records(plan: StructPlan) -> bool:
    return any(
        field.kind == "records" or (field.nested is not None and _holds_records(field.nested))
        for field in plan.fields
        if field.is_present
    )


def _struct(source: Source, depth: int, plan: StructPlan, target: str) -> None:
    values = {field.name: source.fresh("v") for field in plan.fields}
    run: list[FieldPlan] = []
    for field in plan.ordinary:
        if field.is_fixed:
            run.append(field)
            continue
        _run(source, depth, run, values)
        _field(source, depth, field, values[field.name], is_flexible=plan.is_flexible)
    _run(source, depth, run, values)
    if plan.is_flexible:
        _tagged(source, depth, plan, values)
    cls = source.bind("Class", plan.cls)
    arguments = [
        values[field.name] if field.is_present else _default(source, field)
        for field in plan.fields[: _used(plan)]
    ]
    source.line(depth, f"{target} = {cls}({', '.join(arguments)})")


def _used(plan: StructPlan) -> int:
    """How many leading fields must be passed; the class fills in absent ones at the end."""
    present = [i for i, field in enumerate(plan.fields) if field.is_present]
    return present[-1] + 1 if present else 0


def _run(source: Source, depth: int, run: list[FieldPlan], values: dict[str, str]) -> None:
    """Emits one unpack for neighbouring fixed fields."""
    if run:
        unpack, size = source.unpacker("".join(FIXED[field.kind] for field in run))
        targets = ", ".join(values[field.name] for field in run)
        source.line(depth, f"{targets}, = {unpack}(b, p); p += {size}")
        run.clear()


def _default(source: Source, field: FieldPlan) -> str:
    if field.default == () and field.nested is not None and not field.is_array:
        return source.bind("Class", field.nested.cls) + "()"
    if field.default == ():
        return "[]"
    return "ZERO_UUID" if field.kind == "uuid" else repr(field.default)


def _tagged(source: Source, depth: int, plan: StructPlan, values: dict[str, str]) -> None:
    """Emits the tagged section: known tags are decoded, unknown ones skipped."""
    for field in plan.tagged:
        source.line(depth, f"{values[field.name]} = {_default(source, field)}")
    tag, end = source.fresh("tag"), source.fresh("end")
    source.line(depth, "n = b[p]; p += 1")
    source.line(depth, "if n:")
    source.line(depth + 1, "if n > 127: n, p = uvarint(b, p - 1)")
    source.line(depth + 1, "k += n")
    source.line(depth + 1, "if 2 * n > E - p or k > K: raise Malformed('too many tagged fields')")
    source.line(depth + 1, "for _ in range(n):")
    source.line(depth + 2, f"{tag}, p = uvarint(b, p); n, p = uvarint(b, p); {end} = p + n")
    source.line(depth + 2, f"if {end} > E: raise Malformed('a tagged field exceeds the message')")
    word = "if"
    for field in plan.tagged:
        source.line(depth + 2, f"{word} {tag} == {field.tag}:")
        _field(source, depth + 3, field, values[field.name], is_flexible=True)
        word = "elif"
    if plan.tagged:
        source.line(depth + 2, "else:")
        source.line(depth + 3, f"p = {end}")
        source.line(depth + 2, f"if p != {end}: raise Malformed('a tagged field has a wrong size')")
    else:
        source.line(depth + 2, f"p = {end}")


def _field(source: Source, depth: int, field: FieldPlan, target: str, *, is_flexible: bool) -> None:
    if field.is_array:
        _array(source, depth, field, target, is_flexible=is_flexible)
    elif field.nested is None:
        _scalar(source, depth, field, target, is_flexible=is_flexible)
    elif field.is_nullable:
        source.line(depth, "n = b[p]; p += 1")
        source.line(depth, f"if n > 127: {target} = None")
        source.line(depth, "else:")
        _struct(source, depth + 1, field.nested, target)
    else:
        _struct(source, depth, field.nested, target)


def _count(source: Source, depth: int, code: str, *, is_flexible: bool) -> None:
    """Emits the reading of a length or count into n; null is negative."""
    if is_flexible:
        source.line(depth, "n = b[p] - 1; p += 1")
        source.line(depth, "if n > 126: n, p = uvarint(b, p - 1); n -= 1")
    else:
        unpack, size = source.unpacker(code)
        source.line(depth, f"n, = {unpack}(b, p); p += {size}")


def _null(source: Source, depth: int, field: FieldPlan, target: str) -> None:
    source.line(depth, "if n < 0:")
    if field.is_nullable:
        source.line(depth + 1, f"{target} = None")
    else:
        source.line(depth + 1, f"raise Malformed('{field.name} is null')")
    source.line(depth, "else:")


def _array(source: Source, depth: int, field: FieldPlan, target: str, *, is_flexible: bool) -> None:
    _count(source, depth, "i", is_flexible=is_flexible)
    _null(source, depth, field, target)
    depth += 1
    least = max(1, bytes_min(field, is_flexible=is_flexible, as_element=True))
    source.line(depth, "k += n")
    refusal = f"raise Malformed('{field.name} claims too many elements')"
    source.line(depth, f"if n * {least} > E - p or k > K: {refusal}")
    if field.kind == "uuid":
        source.line(depth, "q = p + 16 * n")
        source.line(depth, f"{target} = [bytes(b[i:i + 16]) for i in range(p, q, 16)]; p = q")
    elif field.kind in FIXED:
        code = FIXED[field.kind]
        source.line(depth, f"{target} = list(unpack_from('>%d{code}' % n, b, p)); p += n * {least}")
    else:
        element = source.fresh("e")
        source.line(depth, f"{target} = []")
        source.line(depth, "for _ in range(n):")
        if field.nested is None:
            bare = field._replace(is_nullable=False)
            _scalar(source, depth + 1, bare, element, is_flexible=is_flexible)
        else:
            _struct(source, depth + 1, field.nested, element)
        source.line(depth + 1, f"{target}.append({element})")


def _scalar(
    source: Source, depth: int, field: FieldPlan, target: str, *, is_flexible: bool
) -> None:
    """Emits one string, bytes, records or (in a tagged field) fixed value."""
    if field.kind in FIXED:
        unpack, size = source.unpacker(FIXED[field.kind])
        source.line(depth, f"{target}, = {unpack}(b, p); p += {size}")
        return
    _count(source, depth, "h" if field.kind == "string" else "i", is_flexible=is_flexible)
    _null(source, depth, field, target)
    depth += 1
    source.line(depth, "q = p + n")
    source.line(depth, f"if q > E: raise Malformed('{field.name} exceeds the message')")
    value = {"string": "str(b[p:q], 'utf-8')", "bytes": "bytes(b[p:q])", "records": "m[p:q]"}
    source.line(depth, f"{target} = {value[field.kind]}; p = q")
