"""``mainstem mqtt``: publish and subscribe as an MQTT client."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.access import ConnectionOptions, tls_context
from mainstem.cli.parameters.shared import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    TimeoutSeconds,
)

if TYPE_CHECKING:
    from mainstem.client.network.mqtt_client import MqttClient

app = typer.Typer(help="MQTT: publish and subscribe.", no_args_is_help=True)

PORT, TLS_PORT = 1883, 8883
BEARER = "token"

Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        "-a",
        envvar="MAINSTEM_MQTT",
        metavar="HOST:PORT",
        help="MQTT listener.  [default: port 1883, with TLS 8883, of the --bootstrap host]",
    ),
]
Qos = Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="Quality of service.")]


@app.command("pub")
def publish(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The MQTT topic.")],
    message: Annotated[
        str | None,
        typer.Argument(metavar="MESSAGE", help="The message; default: each line of the input."),
    ] = None,
    qos: Qos = 1,
    retain: Annotated[
        bool, typer.Option("--retain", "-r", help="Keep it for later subscribers.")
    ] = False,
    address: Address = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Publish a message, or every line of the standard input."""
    with _client(bootstrap, address, timeout) as client:
        if message is not None:
            client.publish(topic, message.encode(), qos=qos, retain=retain)
            return
        for line in sys.stdin.buffer:
            client.publish(topic, line.rstrip(b"\r\n"), qos=qos, retain=retain)


@app.command("sub")
def subscribe(
    filters: Annotated[list[str], typer.Argument(metavar="FILTER...", help="Topic filter.")],
    qos: Qos = 1,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="End after so many messages.")
    ] = None,
    quiet_s: Annotated[
        float | None,
        typer.Option("--quiet", min=0.001, help="End after so many seconds without a message."),
    ] = None,
    topics: Annotated[
        bool, typer.Option("--topics", "-v", help="Write the topic in front of each message.")
    ] = False,
    address: Address = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write messages to the standard output, one per line, until interrupted."""
    out = sys.stdout.buffer
    with _client(bootstrap, address, timeout) as client:
        for text in filters:
            client.subscribe(text, qos=qos)
        for number, message in enumerate(client.messages(within_s=quiet_s), 1):
            if topics:
                out.write(message.topic.encode() + b" ")
            out.write(message.payload + b"\n")
            out.flush()
            if number == count:
                return


def _client(access: ConnectionOptions, address: str | None, timeout_s: float) -> "MqttClient":
    from mainstem.client.cluster import parse_address
    from mainstem.client.network.mqtt_client import MqttClient

    port = PORT if access.tls is None else TLS_PORT
    if address is None:
        host, _ = parse_address(access.bootstrap.split(",", maxsplit=1)[0])
    else:
        host, port = parse_address(address if ":" in address else f"{address}:{port}")
    login = None
    if access.login is not None:
        if access.login.by_token:
            raise UsageFailure(
                "delegation tokens work with the Kafka protocol only",
                subject="--delegation-token",
                remedy="log in with a password, or with an API token",
            )
        login = access.login.user, access.login.password
        if access.login.token:
            login = BEARER, access.login.token
    tls = None if access.tls is None else tls_context(access.tls)
    return MqttClient(host, port, login=login, tls=tls, timeout_s=timeout_s)
