"""The HTTP listener of a node, and the data its routes need."""

import platform
from collections.abc import Callable

import mainstem
from mainstem.broker.api.security import Security
from mainstem.broker.services.node_broker import NodeBroker
from mainstem.model.clock import Clock
from mainstem.node.config.settings import Config
from mainstem.node.listeners.authentication import listener_policy
from mainstem.protocols.rest.access import HttpAuthenticator
from mainstem.protocols.rest.handler_context import HandlerContext, NodeDescription, Telemetry
from mainstem.protocols.rest.metrics_sampling import MetricsSampler
from mainstem.protocols.rest.service import RestService
from mainstem.telemetry.health import Health
from mainstem.telemetry.metrics import Metrics
from mainstem.wire.kafka.codec import NAMES

Facts = Callable[[], NodeDescription]


def node_facts(
    config: Config, *, kafka_port: int, http_port: int, segment_bytes: int
) -> NodeDescription:
    """The content of ``/v1/broker``."""
    return NodeDescription(
        version=mainstem.__version__,
        data_dir=config.node.data_dir,
        platform=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        kafka_host=config.kafka.host,
        kafka_port=kafka_port,
        http_host=config.http.host,
        http_port=http_port,
        storage_threads=config.log.storage_threads,
        segment_bytes=segment_bytes,
    )


def rest_service(
    config: Config,
    broker: NodeBroker,
    clock: Clock,
    metrics: Metrics,
    *,
    health: Callable[[], Health],
    facts: Facts,
) -> RestService:
    """The listener, not yet listening."""
    telemetry = Telemetry(
        metrics=metrics,
        figures=MetricsSampler(broker, clock),
        health=health,
        api_name=lambda key: NAMES.get(key, str(key)),
    )
    return RestService(
        HandlerContext(
            broker=broker,
            clock=clock,
            telemetry=telemetry,
            facts=facts,
            authenticator=http_authenticator(config, broker.security),
            body_bytes_max=config.http.body_bytes_max,
        ),
        shared_port=config.http.shared_port,
    )


def http_authenticator(config: Config, security: Security) -> HttpAuthenticator:
    """How the HTTP listener authenticates requests."""
    http = config.http
    return HttpAuthenticator(
        listener_policy(
            config, security, host=http.host, tls=http.tls, login=http.login, sasl=False
        )
    )
