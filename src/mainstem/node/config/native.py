"""The settings of the native listener."""

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from mainstem.model import limits
from mainstem.model.limits import KIB, MIB

if TYPE_CHECKING:
    from mainstem.node.config.settings import Config


class NativeSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The native listener, for `mainstem.client` and other implementations of the protocol."""

    enabled: Annotated[
        bool, Meta(description="Serve the native protocol. The preset `local` does.")
    ] = False
    host: Annotated[
        str,
        Meta(min_length=1, description="Address to listen on. Other than loopback needs insecure."),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port; 0 picks a free one.")] = 2925
    tls: Annotated[bool, Meta(description="Use TLS, with the files of the tls section.")] = False
    login: Annotated[
        bool,
        Meta(
            description="Require a name and password, a token or a client's certificate. Required "
            "off loopback, together with tls."
        ),
    ] = False
    max_connections: Annotated[
        int, Meta(ge=1, description="Connections served at once; more are closed.")
    ] = limits.CONNECTIONS_MAX
    frame_bytes_max: Annotated[
        int,
        Meta(
            ge=4 * KIB,
            le=128 * MIB,
            description="Largest frame of a client, and what a compressed one may unpack to.",
        ),
    ] = 16 * MIB
    heartbeat_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=600_000,
            description="Heartbeat interval of clients that do not request another one. After two "
            "intervals without traffic a connection is closed.",
        ),
    ] = 30_000


def is_native_authentication_required(config: "Config") -> bool:
    """Whether every client has to authenticate."""
    certificates = config.native.tls and config.tls.client_certificates == "required"
    return config.native.login or certificates
