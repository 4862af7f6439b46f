"""What the ways beside the plain one cost: idempotence, rights and quotas, TLS, transactions.

A way is measured in turns with the plain one, whichever comes first alternating, and both send the
very same batches through a bare socket: a ratio of a few per cent drowns in the moods of a machine
and of a client's batching otherwise. Transactions go through librdkafka.
"""

import uuid
from collections.abc import Sequence

from bench.figures import Figure, Figures, Volume
from bench.loads import BATCHING, per_message, raw, rdload
from bench.page_cache import make_present
from bench.sides import Side, new_topic

TURNS = 5
MESSAGE_BYTES = 100
# With its frame in a batch, and a share of the batch's own header.
STORED_BYTES = 110
TRANSACTION_BYTES = 1_000 * STORED_BYTES
# Batches of 60 KB.
RECORDS = 560
IN_FLIGHT = 5
FETCH_BYTES = 1 << 20
BATCHES_PER_FETCH = FETCH_BYTES // (RECORDS * STORED_BYTES)

Way = tuple[Side, Sequence[str]]


def idempotent(side: Side, volume: Volume) -> Figures:
    """Batches that carry a producer's identity and sequence."""
    produced, _ = _beside_each_other((side, ()), (side, ("idempotent=1",)), volume.path, acks=-1)
    return {"idempotent": produced}


def guarded(side: Side, volume: Volume) -> Figures:
    """A user who has logged in, with access rules and quotas to be looked at."""
    way = side.ways["SASL_PLAINTEXT"]
    produced, consumed = _beside_each_other(
        (side, ()), (way, way.bare), volume.path, acks=side.acks
    )
    return {"guarded_produce": produced, "guarded_consume": consumed}


def encrypted(side: Side, volume: Volume) -> Figures:
    """The same bytes through TLS."""
    way = side.ways["SSL"]
    produced, consumed = _beside_each_other(
        (side, ()), (way, way.bare), volume.path, acks=side.acks
    )
    return {"tls_produce": produced, "tls_consume": consumed}


def transactions(side: Side, volume: Volume) -> Figures:
    """Transactions of 1,000 messages over three partitions, one after the other."""
    topic = new_topic(side, partitions=3)
    make_present(volume.transactions * TRANSACTION_BYTES)
    settings = (*BATCHING, f"p.transactional.id={uuid.uuid4().hex[:8]}")
    result, cost = rdload(side, "transact", topic, volume.transactions, MESSAGE_BYTES, *settings)
    side.delete(topic)
    return {"transaction": per_message(result, cost, scale=1e3)}


def _beside_each_other(plain: Way, way: Way, batches: int, *, acks: int) -> tuple[Figure, Figure]:
    """Processor time by a way in relation to the plain one: in, and out."""
    ways = {"plain": plain, "way": way}
    taken: dict[str, list[tuple[float, float]]] = {"plain": [], "way": []}
    for turn in range(TURNS):
        for name in sorted(ways, reverse=bool(turn % 2)):
            taken[name].append(_in_and_out(*ways[name], batches, acks))
    figures = []
    for place in (0, 1):
        # Other work on the machine only ever adds to what a turn costs.
        plain_ns, path_ns = (
            min(sample[place] for sample in taken[name]) for name in ("plain", "way")
        )
        beside = {"path_ns": path_ns, "plain_ns": plain_ns}
        figures.append(Figure(path_ns / plain_ns, beside))
    return figures[0], figures[1]


def _in_and_out(side: Side, options: Sequence[str], batches: int, acks: int) -> tuple[float, float]:
    """Nanoseconds for each message produced, and consumed."""
    topic = new_topic(side)
    make_present(batches * RECORDS * STORED_BYTES)
    settings = (f"records={RECORDS}", *options)
    produced = raw(side, "produce", topic, batches, MESSAGE_BYTES, IN_FLIGHT, acks, *settings)
    fetches = batches // BATCHES_PER_FETCH
    consumed = raw(side, "fetch", topic, fetches, FETCH_BYTES, 1, 0, *options)
    side.delete(topic)
    return (
        per_message(*produced, scale=1e9).value,
        per_message(*consumed, scale=1e9).value,
    )
