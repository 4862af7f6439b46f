"""Fuzzes the decoders of untrusted input: the Kafka codec, request headers, batches, compression.

Each case is named by (seed, index) and by nothing else, so any failure can be run again alone with
``--seed S --start I --cases 1``. Most cases mutate a valid encoding, since random bytes rarely
pass the first length; batches get their checksum repaired every other time, or no mutation would
ever reach the records.

Clean means: a decoder returns a message that survives another round trip or raises ``Malformed``;
the batch parser raises only errors of ``model.errors``; no case takes long; memory stays bounded.
"""

import argparse
import random
import resource
import struct
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from crc32c import crc32c

from mainstem.log.cleaning.batch_filter import raw_records
from mainstem.model.errors import Corrupt, InvalidRequest, MainstemError
from mainstem.model.records import compression
from mainstem.model.records.batch import check_produced
from mainstem.model.records.columns import decode_columns, plain_batch
from mainstem.model.records.record import Record, batches_of, build_batch, records_of
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.samples import draw_message
from mainstem.wire.kafka.schema import load_api

SAMPLES_PER_CODEC = 8
CASE_SECONDS_MAX = 5.0
MEMORY_GROWTH_BYTES_MAX = 512 << 20
DECOMPRESSED_BYTES_MAX = 1 << 20
FAILURES_SHOWN_MAX = 20
OFFSET_MAX = (1 << 63) - 1

NUMBERS = (
    b"\xff\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff",
    b"\x00",
    b"\xc3\x28",
)
CODECS = [
    (key, version, is_request)
    for key, (first, last) in codec.VERSIONS.items()
    for version in range(first, last + 1)
    for is_request in (True, False)
]


class Unclean(Exception):
    """A case showed something that must not happen."""


class Fuzzer:
    """Runs cases by index; valid inputs to mutate are made once and kept."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._chance = random.Random()  # noqa: S311 - cases must be repeatable
        self._samples: dict[tuple[int, int], bytes] = {}
        self._batches = [self._batch(number) for number in range(64)]
        self.outcomes = {"accepted": 0, "refused": 0}

    def run(self, index: int) -> None:
        """Runs one case."""
        chance = self._chance
        chance.seed(self.seed << 64 | index)
        draw = chance.random()
        if draw < 0.55:
            self._message_case(chance)
        elif draw < 0.65:
            self._header_case(chance)
        elif draw < 0.95:
            self._batch_case(chance)
        else:
            self._compression_case(chance)

    def _message_case(self, chance: random.Random) -> None:
        number = chance.randrange(len(CODECS))
        key, version, is_request = CODECS[number]
        if chance.random() < 0.1:
            data = chance.randbytes(chance.randrange(64))
        else:
            data = mutate(self._sample(number, chance.randrange(SAMPLES_PER_CODEC)), chance)
        # The neighbours of a message in a receive buffer must not leak into it.
        buffer = b"\x01\x02\x03" + data + b"\x04" * chance.randrange(40)
        decode = codec.decode_request if is_request else codec.decode_response
        encode = codec.encode_request if is_request else codec.encode_response
        try:
            message = decode(key, version, buffer, 3, 3 + len(data))
        except codec.Malformed:
            self.outcomes["refused"] += 1
            return
        self.outcomes["accepted"] += 1
        once = join(encode(key, version, message))
        twice = join(encode(key, version, decode(key, version, once, 0, len(once))))
        if once != twice:
            raise Unclean(f"{codec.NAMES[key]} version {version} changes in a round trip")

    def _header_case(self, chance: random.Random) -> None:
        number = chance.randrange(len(CODECS))
        key, version, _ = CODECS[number]
        head = struct.pack(">hhi", key, version, chance.randrange(1 << 31)) + b"\0\3abc\0"
        data = mutate(head, chance)
        end = chance.randrange(len(data) + 1)
        try:
            *_, body = codec.decode_request_header(data, 0, end)
        except codec.Malformed:
            self.outcomes["refused"] += 1
            return
        self.outcomes["accepted"] += 1
        if not 0 <= body <= end:
            raise Unclean(f"a header of {end} bytes ends at {body}")

    def _batch_case(self, chance: random.Random) -> None:
        data = bytearray(mutate(chance.choice(self._batches), chance))
        if len(data) >= 61 and chance.random() < 0.7:
            struct.pack_into(">i", data, 8, len(data) - 12)
            struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
        refused = 0
        for attempt in (_check_produced, _read_records, _read_columns):
            try:
                attempt(data)
            except (Corrupt, InvalidRequest):
                refused += 1
        self.outcomes["refused" if refused else "accepted"] += 1

    def _compression_case(self, chance: random.Random) -> None:
        number = chance.randrange(1, 5)
        plain = chance.choice(self._batches)
        data = mutate(compression.compress(number, plain), chance)
        try:
            found = compression.decompress(number, data, limit_bytes=DECOMPRESSED_BYTES_MAX)
        except MainstemError:
            self.outcomes["refused"] += 1
            return
        self.outcomes["accepted"] += 1
        if len(found) > DECOMPRESSED_BYTES_MAX:
            raise Unclean(f"{len(found)} bytes came out, beyond the limit")

    def _sample(self, number: int, variant: int) -> bytes:
        data = self._samples.get((number, variant))
        if data is None:
            key, version, is_request = CODECS[number]
            chance = random.Random(f"{self.seed} {number} {variant}")  # noqa: S311
            plan = load_api(key, version, is_request=is_request)
            encode = codec.encode_request if is_request else codec.encode_response
            data = join(encode(key, version, draw_message(plan, chance)))
            self._samples[number, variant] = data
        return data

    def _batch(self, number: int) -> bytes:
        chance = random.Random(f"{self.seed} batch {number}")  # noqa: S311
        records = [
            Record(
                offset=place,
                timestamp=1_700_000_000_000 + chance.randrange(-1000, 1000),
                key=None if chance.random() < 0.3 else chance.randbytes(chance.randrange(20)),
                value=None if chance.random() < 0.1 else b"value " * chance.randrange(40),
                headers=tuple(("name", b"x") for _ in range(chance.randrange(3))),
            )
            for place in range(chance.randrange(1, 30))
        ]
        return bytes(build_batch(records, codec=number % 5))


def _check_produced(data: bytearray) -> None:
    check_produced(memoryview(data), 0, len(data))


def _read_records(data: bytearray) -> None:
    for _, batch in batches_of(data):
        for _ in records_of(batch, limit_bytes=DECOMPRESSED_BYTES_MAX):
            pass


def _read_columns(data: bytearray) -> None:
    """The columns have the rows that the records are, or neither can be read."""
    for header, batch in batches_of(data):
        plain = plain_batch(header, batch, limit_bytes=DECOMPRESSED_BYTES_MAX)
        raw_records(plain.body, header)
        try:
            records = list(records_of(batch, limit_bytes=DECOMPRESSED_BYTES_MAX))
        except Corrupt:
            records = None
        try:
            found = decode_columns([plain], 0, OFFSET_MAX, with_headers=True)
        except Corrupt:
            if records and header.base_offset >= 0:
                raise Unclean("columns refuse what can be read as records") from None
            raise
        if records is None or found.row_count != len(records):
            raise Unclean(f"{found.row_count} rows of columns, records say {records}")


def join(chunks: list[Any]) -> bytes:
    """The chunks of a message as one piece."""
    return b"".join(chunks)


def mutate(data: bytes, chance: random.Random) -> bytes:
    """One to four edits of a valid input."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        at = chance.randrange(len(out) + 1)
        chance.choice(EDITS)(out, at, chance)
    return bytes(out)


def _flip(out: bytearray, at: int, chance: random.Random) -> None:
    if at < len(out):
        out[at] ^= 1 << chance.randrange(8)


def _set(out: bytearray, at: int, chance: random.Random) -> None:
    if at < len(out):
        out[at] = chance.randrange(256)


def _overwrite(out: bytearray, at: int, chance: random.Random) -> None:
    number = chance.choice(NUMBERS)
    out[at : at + len(number)] = number


def _insert(out: bytearray, at: int, chance: random.Random) -> None:
    out[at:at] = chance.choice(NUMBERS)


def _cut(out: bytearray, at: int, chance: random.Random) -> None:
    del out[at : at + chance.randrange(1, 9)]


def _truncate(out: bytearray, at: int, _: random.Random) -> None:
    del out[at:]


def _repeat(out: bytearray, at: int, chance: random.Random) -> None:
    piece = out[at : at + chance.randrange(1, 33)]
    out[at:at] = piece * chance.randrange(1, 5)


EDITS: tuple[Callable[[bytearray, int, random.Random], None], ...] = (
    _flip,
    _set,
    _overwrite,
    _insert,
    _cut,
    _truncate,
    _repeat,
)


def memory_bytes() -> int:
    """The most memory this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def check_cost(began: float, memory_before: int | None) -> None:
    """One case may take neither long nor much memory."""
    took = time.monotonic() - began
    if took > CASE_SECONDS_MAX:
        raise Unclean(f"took {took:.1f} s")
    if memory_before is not None and memory_bytes() - memory_before > MEMORY_GROWTH_BYTES_MAX:
        raise Unclean(f"memory grew to {memory_bytes() >> 20} MiB")


class Cases(Protocol):
    """What runs cases by index."""

    outcomes: dict[str, int]

    def run(self, index: int) -> None:
        """Runs one case."""
        ...


def run(
    seed: int,
    start: int,
    cases: int,
    *,
    quiet: bool = False,
    make: Callable[[int], Cases] | None = None,
) -> int:
    """Run the cases, by default those of Kafka's codec; returns how many were unclean."""
    fuzzer: Cases = (make or Fuzzer)(seed)
    memory_before = memory_bytes()
    began = shown = time.monotonic()
    failures = 0
    for index in range(start, start + cases):
        before = time.monotonic()
        try:
            fuzzer.run(index)
            check_cost(before, memory_before if index % 1000 == 0 else None)
        # Anything at all that escapes is what the fuzzer looks for.
        except Exception:  # noqa: BLE001
            failures += 1
            print(f"UNCLEAN --seed {seed} --start {index} --cases 1", file=sys.stderr)
            traceback.print_exc()
            if failures >= FAILURES_SHOWN_MAX:
                break
        if not quiet and before - shown > 5:
            shown = before
            done = index - start + 1
            rate = done / (before - began)
            print(f"{done:,} of {cases:,} cases, {rate:,.0f}/s, next is {index + 1}", flush=True)
    if not quiet:
        took = time.monotonic() - began
        growth = (memory_bytes() - memory_before) >> 20
        print(
            f"{cases:,} cases from {start:,} with seed {seed}: {failures} unclean, "
            f"{fuzzer.outcomes['accepted']:,} accepted, {fuzzer.outcomes['refused']:,} refused, "
            f"{took:.0f} s, memory +{growth} MiB"
        )
    return failures


def main(make: Callable[[int], Cases] | None = None) -> int:
    """Exit code 0 when every case was clean, 1 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=1_000_000, help="number of cases to run")
    parser.add_argument("--seed", type=int, default=1, help="seed of the series")
    parser.add_argument("--start", type=int, default=0, help="index of the first case")
    arguments = parser.parse_args()
    try:
        return 1 if run(arguments.seed, arguments.start, arguments.cases, make=make) else 0
    except KeyboardInterrupt:
        print("interrupted; continue with --start and the last index shown", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
