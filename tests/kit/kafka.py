"""Calls to handlers of the Kafka protocol, through the codec, so that versions matter."""

from collections.abc import Mapping
from inspect import isawaitable
from typing import Any

from mainstem.protocols.kafka.call import ApiHandler, Call, Peer
from mainstem.wire.kafka import codec


class HandlerClient:
    """A connection to ``broker``, or to as much of one as the handlers of a test need."""

    client_id = "c"

    def __init__(self, served: Mapping[int, ApiHandler], broker: Any) -> None:
        self.served = served
        self.broker = broker
        self.peer = Peer("127.0.0.1", 5, "127.0.0.1", 9092)

    async def ask(self, api_key: int, version: int, request: Any) -> Any:
        """The response to a request, both encoded and decoded on their way."""
        served = self.served[api_key]
        assert served.min_version <= version <= served.max_version
        sent = _joined(codec.encode_request(api_key, version, request))
        received = codec.decode_request(api_key, version, sent, 0, len(sent))
        call = Call(api_key, version, self.client_id, self.peer, self.broker)
        answer = served.handler(call, received)
        if isawaitable(answer):
            answer = await answer
        returned = _joined(codec.encode_response(api_key, version, answer))
        return codec.decode_response(api_key, version, returned, 0, len(returned))


def _joined(chunks: list[Any]) -> bytes:
    return b"".join(chunks)
