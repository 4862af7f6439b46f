"""The Kafka listener: sessions on real connections, with work run as event loop tasks."""

import asyncio
from random import SystemRandom

from mainstem.protocols.connection import Connection
from mainstem.protocols.kafka.call import Peer
from mainstem.protocols.kafka.endpoint import KafkaEndpoint
from mainstem.protocols.kafka.fetch_sessions import FetchSessions
from mainstem.protocols.kafka.handlers.records.fetch import Fetch
from mainstem.protocols.kafka.session import KafkaService, KafkaSession
from mainstem.protocols.listener import Listener
from mainstem.protocols.loop_driver import LoopRunner
from mainstem.protocols.receive_buffers import Buffers


def kafka_listener(
    service: KafkaService,
    endpoint: KafkaEndpoint,
    *,
    connections_max: int,
    idle_ms: int,
    buffers: Buffers,
) -> Listener:
    """Create the Kafka listener."""
    runner = LoopRunner("a Kafka request")
    random_source = SystemRandom()
    sessions = FetchSessions(lambda: random_source.randrange(1, 2**31))
    loop = asyncio.get_running_loop()

    def start_fetch(fetch: Fetch) -> None:
        fetch.start(sessions, loop)

    def make_session(connection: Connection) -> KafkaSession:
        peer = Peer(*connection.peer, *connection.local)
        endpoint.receive(peer, connection.tls_object)
        return KafkaSession(connection, peer, service, runner, start_fetch)

    listener = Listener(
        "kafka",
        make_session,
        connections_max=connections_max,
        idle_ms=idle_ms,
        buffers=buffers,
        metrics=service.metrics,
    )
    listener.refuses = endpoint.policy.refuses
    listener.login_timeout_ms = endpoint.policy.login_timeout_ms
    return listener
