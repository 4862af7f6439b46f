"""The settings of MQTT, a part of the tree in ``config``."""

from typing import Annotated

from msgspec import Meta, Struct

from mainstem.model import limits

KIB, MIB = limits.KIB, limits.MIB


class MqttSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """MQTT 3.1.1 and 5."""

    enabled: Annotated[
        bool,
        Meta(description="Serve MQTT. Its topics are created when the first client connects."),
    ] = False
    host: Annotated[
        str,
        Meta(min_length=1, description="Address to listen on. Other than loopback needs a login."),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port; 0 picks a free one.")] = 1883
    cleartext: Annotated[
        bool,
        Meta(description="Listen on port without TLS. Switch it off to serve only tls_port."),
    ] = True
    tls_port: Annotated[
        Annotated[int, Meta(ge=0, le=65535)] | None,
        Meta(
            description="Port that uses TLS, with the files of the tls section; 8883 is usual, 0 "
            "picks a free one. Unset: there is none."
        ),
    ] = None
    websocket: Annotated[
        bool, Meta(description="Serve MQTT over WebSocket as well, at /mqtt of the HTTP listener.")
    ] = True
    login: Annotated[
        bool,
        Meta(
            description="Require a name and password (or the name `token` and a token), for an "
            "exchange as SCRAM, or for a client's certificate. Off loopback it needs TLS."
        ),
    ] = False
    topic: Annotated[
        str, Meta(min_length=1, description="Topic of the log that messages go to by default.")
    ] = "mqtt"
    routes: Annotated[
        tuple[str, ...],
        Meta(
            description="Rules prefix=topic: MQTT topics with that prefix go to that topic of the "
            "log; the longest matching prefix wins."
        ),
    ] = ()
    max_connections: Annotated[
        int,
        Meta(ge=1, description="Connections served at once; more are closed. Bound by open files."),
    ] = limits.CONNECTIONS_MAX
    packet_bytes_max: Annotated[
        int,
        Meta(
            ge=KIB,
            le=limits.MESSAGE_BYTES_MAX,
            description="Largest packet; announced to MQTT 5 clients.",
        ),
    ] = 1 * MIB
    receive_max: Annotated[
        int,
        Meta(
            ge=1,
            le=65535,
            description="Messages that a client may send before they are acknowledged.",
        ),
    ] = 1_000
    window_max: Annotated[
        int,
        Meta(
            ge=1,
            le=65535,
            description="Unacknowledged messages in flight to a client, if it does not ask for "
            "fewer.",
        ),
    ] = 1_000
    topic_aliases_max: Annotated[
        int, Meta(ge=0, le=65535, description="Aliases for topics per connection and direction.")
    ] = 100
    session_expiry_max_s: Annotated[
        int,
        Meta(
            ge=0,
            le=2**32 - 1,
            description="How long a session outlives its connection at most. What waits for it is "
            "bound by the retention of the topic as well.",
        ),
    ] = 7 * 24 * 3600
    sessions_max: Annotated[int, Meta(ge=1, description="Sessions at once; more are refused.")] = (
        100_000
    )
    subscriptions_max: Annotated[
        int, Meta(ge=1, description="Subscriptions of one session; more are refused.")
    ] = 1_000
    keep_alive_max_s: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="Longest keep alive that a client may request; 0: no limit.",
        ),
    ] = 0
    retained_max: Annotated[
        int, Meta(ge=0, description="Retained messages that are kept; more are refused.")
    ] = 1_000_000
    retained_bytes_max: Annotated[
        int, Meta(ge=0, description="Memory for retained messages; more are refused.")
    ] = 256 * MIB
