"""Reads events in Avro as anybody would: by the schemas of the schema topic, with fastavro."""

import base64
import io
import json
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
from tests.integration.cdc.follow import Told

MARKER = b"\xc3\x01"


class AvroReading:
    """Takes records of the schema topic and of others, in their order."""

    def __init__(self, schema_topic: str) -> None:
        self._topic = schema_topic
        self.schemas: dict[int, Any] = {}

    def events(self, told: list[Told]) -> list[Told]:
        """All records that are not schemas, decoded."""
        found = []
        for each in told:
            if each["topic"] == self._topic:
                self._learn(each)
                continue
            headers = [
                {"key": pair["key"], "value": self._decoded(pair["value"])}
                for pair in each["headers"] or ()
            ]
            key, value = self._decoded(each["key"]), self._decoded(each["value"])
            found.append({**each, "key": key, "value": value, "headers": headers})
        return found

    def _learn(self, told: Told) -> None:
        schema = json.loads(told["value"])
        number = int(told["key"], 16)
        canonical = fastavro.schema.to_parsing_canonical_form(schema)
        expected = fastavro.schema.fingerprint(canonical, "CRC-64-AVRO")
        assert number == int.from_bytes(bytes.fromhex(expected), "little")
        self.schemas[number] = fastavro.parse_schema(schema)

    def _decoded(self, data: bytes | None) -> Any:
        if data is None:
            return None
        assert data[:2] == MARKER
        schema = self.schemas[int.from_bytes(data[2:10], "little")]
        stream = io.BytesIO(data[10:])
        value = fastavro.schemaless_reader(stream, schema, None)
        assert not stream.read(), "bytes are left"
        return value


def tells_the_same(avro: Any, plain: Any, placeholder: str) -> bool:
    """Whether a value of Avro is what JSON tells."""
    if isinstance(plain, dict) and isinstance(avro, dict):
        avro, plain = list(avro.values()), list(plain.values())
    if isinstance(plain, list) and isinstance(avro, list):
        return len(avro) == len(plain) and all(
            tells_the_same(one, other, placeholder) for one, other in zip(avro, plain, strict=True)
        )
    if avro is None:
        return plain is None or bool(plain == placeholder)
    for kind, is_same in COMPARED.items():
        if isinstance(avro, kind):
            return is_same(avro, plain)
    return bool(avro == plain)


def _same_bytes(avro: bytes, plain: str) -> bool:
    spelt = (base64.b64encode(avro), base64.urlsafe_b64encode(avro), avro.hex().encode())
    return plain.encode() in spelt


def _same_decimal(avro: Decimal, plain: str) -> bool:
    digits = int.from_bytes(base64.b64decode(plain), "big", signed=True)
    return int(avro.scaleb(-int(avro.as_tuple().exponent))) == digits


def _same_float(avro: float, plain: float | str) -> bool:
    number = float(plain)
    return avro in {number, _short(number)} or (math.isnan(number) and math.isnan(avro))


def _same_text(avro: str, plain: Any) -> bool:
    return avro == plain if isinstance(plain, str) else bool(json.loads(avro) == plain)


def _same_number(avro: int, plain: int) -> bool:
    return avro == plain or avro == plain - 2**64


COMPARED: dict[type, Callable[[Any, Any], bool]] = {
    bytes: _same_bytes,
    Decimal: _same_decimal,
    float: _same_float,
    str: _same_text,
    int: _same_number,
}


def _short(number: float) -> float:
    try:
        [short] = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return math.copysign(3.4028234663852886e38, number)
    return float(short)


def compared(avro: list[Told], plain: list[Told], placeholder: str) -> int:
    """Compares two tellings of the same changes; how many records were compared."""
    assert [each["topic"] for each in avro] == [each["topic"] for each in plain]
    for one, other in zip(avro, plain, strict=True):
        for part in ("key", "value"):
            expected = None if other[part] is None else json.loads(other[part])
            told = one[part]
            if isinstance(expected, dict) and "op" in expected and "after" in expected:
                told = {name: told[name] for name in ("before", "after", "op")}
                expected = {name: expected[name] for name in ("before", "after", "op")}
            elif part == "value" and expected is not None:
                told, expected = sorted(told), sorted(expected)
            assert tells_the_same(told, expected, placeholder), (told, expected)
        assert len(one["headers"]) == len(other["headers"] or ())
    return len(plain)
