"""The settings of the AMQP listener."""

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from mainstem.model import limits
from mainstem.model.limits import KIB, MIB

if TYPE_CHECKING:
    from mainstem.node.config.settings import Config

FRAME_BYTES: Final = 128 * KIB
MESSAGE_BYTES: Final = 16 * MIB


class AmqpSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The AMQP 0.9.1 listener, for clients of RabbitMQ."""

    enabled: Annotated[bool, Meta(description="Serve AMQP. The preset `local` does.")] = False
    host: Annotated[
        str,
        Meta(min_length=1, description="Address to listen on. Other than loopback needs insecure."),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port; 0 picks a free one.")] = 5672
    tls: Annotated[bool, Meta(description="Use TLS, with the files of the tls section.")] = False
    login: Annotated[
        bool,
        Meta(
            description="Require a name and password or a client's certificate. Required off "
            "loopback, together with tls. Without it, any name is accepted and ignored."
        ),
    ] = False
    max_connections: Annotated[
        int, Meta(ge=1, description="Connections served at once; more are closed.")
    ] = limits.CONNECTIONS_MAX
    channels_max: Annotated[
        int, Meta(ge=1, le=65535, description="Channels of one connection.")
    ] = 2_047
    frame_bytes_max: Annotated[
        int,
        Meta(
            ge=4 * KIB,
            le=16 * MIB,
            description="Largest frame that is negotiated; larger messages use several frames.",
        ),
    ] = FRAME_BYTES
    message_bytes_max: Annotated[
        int,
        Meta(
            ge=KIB,
            le=limits.MESSAGE_BYTES_MAX,
            description="Largest message that is accepted; a larger one closes its channel.",
        ),
    ] = MESSAGE_BYTES
    heartbeat_s: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="Heartbeat interval proposed to clients, in seconds; 0 for none. After "
            "two intervals without traffic a connection is closed.",
        ),
    ] = 60


def is_amqp_authentication_required(config: "Config") -> bool:
    """Whether every client has to authenticate."""
    certificates = config.amqp.tls and config.tls.client_certificates == "required"
    return config.amqp.login or certificates
