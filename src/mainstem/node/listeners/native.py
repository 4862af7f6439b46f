"""The native listener of a node."""

import secrets
from typing import Final

import mainstem
from mainstem.broker.services.node_broker import NodeBroker
from mainstem.node.config.settings import Config
from mainstem.node.listeners.authentication import listener_policy
from mainstem.node.listeners.single_port import PortContext, PortSettings, SinglePortListener
from mainstem.protocols.native.link import NativeLimits, NativeService
from mainstem.protocols.native.listener import NativeListener

NAME_BYTES: Final = 16


def native_listener(config: Config, broker: NodeBroker) -> SinglePortListener:
    """The native listener, not yet open."""

    def make(context: PortContext) -> NativeListener:
        service = NativeService(
            broker=broker,
            clock=context.clock,
            metrics=context.metrics,
            limits=NativeLimits(
                frame_bytes_max=config.native.frame_bytes_max,
                heartbeat_ms=config.native.heartbeat_ms,
            ),
            new_name=lambda: secrets.token_urlsafe(NAME_BYTES),
            cluster_name=broker.topics.cluster_id(),
            version=mainstem.__version__,
        )
        policy = listener_policy(
            config,
            broker.security,
            host=config.native.host,
            tls=config.native.tls,
            login=config.native.login,
            sasl=config.native.login,
        )
        return NativeListener(
            service,
            policy,
            connections_max=config.native.max_connections,
            buffers=context.buffers,
        )

    settings = PortSettings(
        enabled=config.native.enabled,
        host=config.native.host,
        port=config.native.port,
        tls=config.native.tls,
    )
    return SinglePortListener("native", settings, make)
