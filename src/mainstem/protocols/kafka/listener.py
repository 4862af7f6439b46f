"""Kafka sessions on real connections: what takes time runs as tasks of the node's loop."""

import asyncio
from random import SystemRandom

from mainstem.protocols.kafka.call import Peer
from mainstem.protocols.kafka.fetch_sessions import FetchSessions
from mainstem.protocols.kafka.handlers.records.fetch import Fetch
from mainstem.protocols.kafka.listener_policy import KafkaListenerPolicy
from mainstem.protocols.kafka.session import KafkaService, KafkaSession
from mainstem.protocols.listener import Buffers, Connection, Listener
from mainstem.protocols.loop_driver import LoopRunner


def kafka_listener(
    service: KafkaService,
    entrance: KafkaListenerPolicy,
    *,
    connections_max: int,
    idle_ms: int,
    buffers: Buffers,
) -> Listener:
    """The listener whose connections speak Kafka."""
    runner = LoopRunner("a Kafka request")
    random_source = SystemRandom()
    sessions = FetchSessions(lambda: random_source.randrange(1, 2**31))
    loop = asyncio.get_running_loop()

    def start_fetch(fetch: Fetch) -> None:
        fetch.start(sessions, loop)

    def make_session(connection: Connection) -> KafkaSession:
        peer = Peer(*connection.peer, *connection.local)
        entrance.receive(peer, connection.tls_object)
        return KafkaSession(connection, peer, service, runner, start_fetch)

    listener = Listener(
        "kafka",
        make_session,
        connections_max=connections_max,
        idle_ms=idle_ms,
        buffers=buffers,
        metrics=service.metrics,
    )
    listener.refuses = entrance.refuses
    listener.login_timeout_ms = entrance.login_timeout_ms
    return listener
