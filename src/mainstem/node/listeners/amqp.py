"""The AMQP listener of a node."""

import secrets
from typing import Final

from msgspec.structs import replace

import mainstem
from mainstem.broker.services.node_broker import NodeBroker
from mainstem.node.config.settings import Config
from mainstem.node.listeners.authentication import listener_policy
from mainstem.node.listeners.single_port import PortContext, PortSettings, SinglePortListener
from mainstem.protocols.amqp.channel_link import AmqpLimits, AmqpService
from mainstem.protocols.amqp.convert import Converter
from mainstem.protocols.amqp.direct_reply import PendingReplies
from mainstem.protocols.amqp.listener import AmqpListener
from mainstem.protocols.amqp.mechanisms import WITHOUT_LOGIN, with_own

NAME_BYTES: Final = 16


def amqp_listener(config: Config, broker: NodeBroker) -> SinglePortListener:
    """The AMQP listener, not yet open."""

    def make(context: PortContext) -> AmqpListener:
        service = AmqpService(
            queues=broker.queues,
            security=broker.security,
            clock=context.clock,
            limits=AmqpLimits(
                channels_max=config.amqp.channels_max,
                frame_bytes_max=config.amqp.frame_bytes_max,
                heartbeat_s=config.amqp.heartbeat_s,
                message_bytes_max=config.amqp.message_bytes_max,
            ),
            new_name=lambda: secrets.token_urlsafe(NAME_BYTES),
            cluster_name=config.node.cluster_id or f"node-{config.node.id}",
            version=mainstem.__version__,
            converter=Converter(),
            replies=PendingReplies(),
            memory=context.resources.memory,
            has_space=context.resources.has_space,
        )
        policy = listener_policy(
            config,
            broker.security,
            host=config.amqp.host,
            tls=config.amqp.tls,
            login=config.amqp.login,
            sasl=config.amqp.login,
        )
        return AmqpListener(
            service,
            replace(policy, mechanisms=with_own(policy.mechanisms), without_login=WITHOUT_LOGIN),
            context.metrics,
            connections_max=config.amqp.max_connections,
            buffers=context.buffers,
        )

    settings = PortSettings(
        enabled=config.amqp.enabled,
        host=config.amqp.host,
        port=config.amqp.port,
        tls=config.amqp.tls,
    )
    return SinglePortListener("amqp", settings, make)
