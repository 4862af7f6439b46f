"""Encodes facts of queues and topologies as records of internal streams, and decodes them.

The key has the version of the value's format and the queue it is about; the value is
MessagePack. Guarantees: every fact survives the round trip; an unknown version decodes to
None, which ends the loading; bytes that do not decode are ``Corrupt``.
"""

from struct import Struct as Layout
from typing import Generic, TypeVar

from msgspec.msgpack import Decoder, Encoder

from mainstem.coordination.shards.fact_log import FactCodec
from mainstem.coordination.transactions.state import ProducerIdentity
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt
from mainstem.queues.facts import QueueFact
from mainstem.queues.routing.router import RouterFact
from mainstem.queues.routing.topology import TopologyFact
from mainstem.queues.storage.shard_state import ShardFact

_VERSION = 1
_KEY = Layout(">Bq")
_ENCODER = Encoder()
_NO_QUEUE = -1

T = TypeVar("T")


class PackedFacts(Generic[T]):
    """Encodes facts of one kind as records. They never wait for a transaction."""

    version_bytes = 1
    versions = str(_VERSION)

    def __init__(self, decoder: "Decoder[T]") -> None:
        self._decoder = decoder

    def encode(self, fact: T) -> tuple[bytes, bytes | None]:
        """Key and value of the record for ``fact``."""
        return _KEY.pack(_VERSION, getattr(fact, "queue", _NO_QUEUE)), _ENCODER.encode(fact)

    def decode(self, key: bytes | None, value: bytes | None) -> T | None:
        """The fact in a record, or None for an unknown version.

        Raises:
            Corrupt: the bytes do not match the format of their version.
        """
        if not key or key[0] != _VERSION:
            return None
        if value is None or len(key) != _KEY.size:
            raise Corrupt(f"a record of {len(key)} key bytes is not a fact")
        try:
            return self._decoder.decode(value)
        except (*DECODE_ERRORS, ValueError) as error:
            raise Corrupt(f"a fact of {len(value)} bytes does not decode: {error}") from error

    def producer_of(self, _fact: T) -> ProducerIdentity | None:
        """None: facts of queues are not transactional."""
        return None

    def pending(self, _fact: T, _producer: ProducerIdentity) -> None:
        """Do nothing: Mainstem writes no transactional batches here."""

    def ended(self, _producer: ProducerIdentity, *, commit: bool) -> None:
        """Do nothing: no fact waits for a marker."""


QUEUE_CODEC: FactCodec[QueueFact] = PackedFacts(Decoder(QueueFact))
TOPOLOGY_CODEC: FactCodec[TopologyFact] = PackedFacts(Decoder(TopologyFact))
ROUTER_CODEC: FactCodec[RouterFact] = PackedFacts(Decoder(RouterFact))
# All facts in a partition of the internal topic.
SHARD_CODEC: FactCodec[ShardFact] = PackedFacts(Decoder(ShardFact))
