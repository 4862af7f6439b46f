"""Facts of queues and of topologies as records of internal streams, and back.

The key says which version of the format the value has and which queue it is about; the value is
MessagePack. Promises: every fact survives the round trip; a version that is not known decodes to
None, which ends the loading; bytes that are no fact are ``Corrupt``.
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
    """How facts of one kind become records. None of them ever waits for a transaction."""

    version_bytes = 1
    versions = str(_VERSION)

    def __init__(self, decoder: "Decoder[T]") -> None:
        self._decoder = decoder

    def encode(self, fact: T) -> tuple[bytes, bytes | None]:
        """Key and value of the record that keeps ``fact``."""
        return _KEY.pack(_VERSION, getattr(fact, "queue", _NO_QUEUE)), _ENCODER.encode(fact)

    def decode(self, key: bytes | None, value: bytes | None) -> T | None:
        """The fact in a record, or None for a version that is not known here.

        Raises:
            Corrupt: the bytes do not have the shape that their version says.
        """
        if not key or key[0] != _VERSION:
            return None
        if value is None or len(key) != _KEY.size:
            raise Corrupt(f"a record of {len(key)} key bytes is no fact")
        try:
            return self._decoder.decode(value)
        except (*DECODE_ERRORS, ValueError) as error:
            raise Corrupt(f"a fact of {len(value)} bytes does not decode: {error}") from error

    def producer_of(self, _fact: T) -> ProducerIdentity | None:
        """Nobody's transaction decides about these."""
        return None

    def pending(self, _fact: T, _producer: ProducerIdentity) -> None:
        """Nothing is taken from transactional batches: Mainstem writes none here."""

    def ended(self, _producer: ProducerIdentity, *, commit: bool) -> None:
        """Nothing waits for a marker here."""


QUEUE_CODEC: FactCodec[QueueFact] = PackedFacts(Decoder(QueueFact))
TOPOLOGY_CODEC: FactCodec[TopologyFact] = PackedFacts(Decoder(TopologyFact))
ROUTER_CODEC: FactCodec[RouterFact] = PackedFacts(Decoder(RouterFact))
# Everything that a partition of the internal topic keeps.
SHARD_CODEC: FactCodec[ShardFact] = PackedFacts(Decoder(ShardFact))
