"""Compiles the encoder of one message version: one flat function that returns chunks.

Everything between two ``records`` values is joined into one piece of bytes; a records value stays
its own chunk whatever it is, as long as it has a length, so that a slice of a file can be
passed through unchanged.

Names in the generated code: w appends to the pieces out, chunks are the finished ones, n a count.
"""

import struct
from collections.abc import Callable, Sized
from typing import Any

from mainstem.wire.kafka.primitives import SMALL_VARINTS, encode_uvarint
from mainstem.wire.kafka.schema import FIXED, FieldPlan, StructPlan
from mainstem.wire.kafka.source import Source

Chunk = bytes | memoryview | Sized
Encoder = Callable[[Any], list[Chunk]]


def compile_encoder(plan: StructPlan) -> Encoder:
    """The encoder of one message version."""
    source = Source(
        {
            "SMALL": SMALL_VARINTS,
            "uvarint": encode_uvarint,
            "pack": struct.pack,
            "join": b"".join,
            "ZERO_UUID": bytes(16),
        }
    )
    source.line(0, "def encode(message):")
    source.line(1, "chunks = []; out = []; w = out.append")
    _struct(source, 1, plan, "message")
    source.line(1, "if out or not chunks: chunks.append(join(out))")
    source.line(1, "return chunks")
    encoder: Encoder = source.function("encode")
    return encoder


def _struct(source: Source, depth: int, plan: StructPlan, value: str) -> None:
    run: list[FieldPlan] = []
    for field in plan.ordinary:
        if field.is_fixed:
            run.append(field)
            continue
        _run(source, depth, run, value)
        _field(source, depth, field, f"{value}.{field.name}", is_flexible=plan.is_flexible)
    _run(source, depth, run, value)
    if plan.is_flexible:
        _tagged(source, depth, plan, value)


def _run(source: Source, depth: int, run: list[FieldPlan], value: str) -> None:
    """Emits one pack for neighbouring fixed fields."""
    if run:
        pack = source.packer("".join(FIXED[field.kind] for field in run))
        arguments = ", ".join(f"{value}.{field.name}" for field in run)
        source.line(depth, f"w({pack}({arguments}))")
        run.clear()


def _tagged(source: Source, depth: int, plan: StructPlan, value: str) -> None:
    """Emits the tagged section: only fields that differ from their default are written."""
    if not plan.tagged:
        source.line(depth, "w(b'\\0')")
        return
    section = source.fresh("section")
    source.line(depth, f"{section} = []")
    for field in plan.tagged:
        item, outer, pieces = source.fresh("x"), source.fresh("w"), source.fresh("o")
        source.line(depth, f"{item} = {value}.{field.name}")
        source.line(depth, f"if {_differs(source, field, item)}:")
        source.line(depth + 1, f"{outer} = w; {pieces} = []; w = {pieces}.append")
        _field(source, depth + 1, field, item, is_flexible=True)
        source.line(depth + 1, f"w = {outer}; {pieces} = join({pieces})")
        tag = encode_uvarint(field.tag)
        source.line(depth + 1, f"{section} += ({tag!r}, uvarint(len({pieces})), {pieces})")
    source.line(depth, f"w(SMALL[len({section}) // 3]); w(join({section}))")


def _differs(source: Source, field: FieldPlan, item: str) -> str:
    if field.default is None:
        return f"{item} is not None"
    if field.default != ():
        default = "ZERO_UUID" if field.kind == "uuid" else repr(field.default)
        return f"{item} != {default}"
    if field.is_array:
        return f"{item} is None or {item}" if field.is_nullable else item
    assert field.nested is not None, "only lists and structs have the default ()"
    return f"{item} != {source.bind('default', field.nested.cls())}"


def _field(source: Source, depth: int, field: FieldPlan, value: str, *, is_flexible: bool) -> None:
    if field.is_array:
        _array(source, depth, field, value, is_flexible=is_flexible)
    elif field.nested is None:
        _scalar(source, depth, field, value, is_flexible=is_flexible)
    elif field.is_nullable:
        item = source.fresh("x")
        source.line(depth, f"{item} = {value}")
        source.line(depth, f"if {item} is None: w(b'\\xff')")
        source.line(depth, "else:")
        source.line(depth + 1, "w(b'\\1')")
        _struct(source, depth + 1, field.nested, item)
    else:
        item = source.fresh("x")
        source.line(depth, f"{item} = {value}")
        _struct(source, depth, field.nested, item)


def _count(source: Source, depth: int, code: str, what: str, *, is_flexible: bool) -> None:
    """Emits the writing of a length or count."""
    if is_flexible:
        source.line(depth, f"n = len({what}) + 1; w(SMALL[n] if n < 128 else uvarint(n))")
    else:
        source.line(depth, f"w({source.packer(code)}(len({what})))")


def _array(source: Source, depth: int, field: FieldPlan, value: str, *, is_flexible: bool) -> None:
    items = source.fresh("x")
    source.line(depth, f"{items} = {value}")
    if field.is_nullable:
        source.line(depth, f"if {items} is None: w({_null(is_flexible=is_flexible, size=4)!r})")
        source.line(depth, "else:")
        depth += 1
    _count(source, depth, "i", items, is_flexible=is_flexible)
    if field.kind == "uuid":
        source.line(depth, f"w(join({items}))")
    elif field.kind in FIXED:
        code = FIXED[field.kind]
        source.line(depth, f"if {items}: w(pack('>%d{code}' % len({items}), *{items}))")
    else:
        element = source.fresh("e")
        source.line(depth, f"for {element} in {items}:")
        if field.nested is None:
            bare = field._replace(is_nullable=False)
            _scalar(source, depth + 1, bare, element, is_flexible=is_flexible)
        else:
            _struct(source, depth + 1, field.nested, element)


def _null(*, is_flexible: bool, size: int) -> bytes:
    return b"\0" if is_flexible else b"\xff" * size


def _scalar(source: Source, depth: int, field: FieldPlan, value: str, *, is_flexible: bool) -> None:
    """Emits one string, bytes, records or (in a tagged field) fixed value."""
    if field.kind in FIXED:
        source.line(depth, f"w({source.packer(FIXED[field.kind])}({value}))")
        return
    is_string = field.kind == "string"
    item = source.fresh("x")
    source.line(depth, f"{item} = {value}")
    if field.is_nullable:
        null = _null(is_flexible=is_flexible, size=2 if is_string else 4)
        source.line(depth, f"if {item} is None: w({null!r})")
        source.line(depth, "else:")
        depth += 1
    if is_string:
        source.line(depth, f"{item} = {item}.encode()")
    _count(source, depth, "h" if is_string else "i", item, is_flexible=is_flexible)
    if field.kind == "records":
        source.line(depth, f"if len({item}):")
        source.line(depth + 1, f"chunks += (join(out), {item}); out.clear()")
    else:
        source.line(depth, f"w({item})")
