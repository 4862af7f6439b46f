"""The ``http-webhook`` connector: receives HTTP requests as records and sends records as requests.

The source listens and answers *accepted* when a request is on disk. The sink sends each record as a
request with an idempotency key; see ``webhook.listener`` and ``webhook.sender``.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from mainstem.pipelines.connector.batches import written_by
from mainstem.pipelines.connector.shapes import (
    ConnectorContext,
    Discovered,
    Finding,
    failed,
    passed,
)
from mainstem.pipelines.connector.spec import Category, DeliveryGuarantee, Secret, Spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from mainstem.pipelines.webhook.sender import Outgoing, SenderSettings

CHECK_TIMEOUT_S = 10.0


class WebhookSourceConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Address and authentication of received requests."""

    port: Annotated[int, Meta(ge=0, le=65535, description="Port; 0 selects a free one.")]
    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    path: Annotated[str, Meta(pattern="^/", description="URL path of the requests.")] = "/"
    token: Annotated[
        Secret | None, Meta(description="Required token in `Authorization: Bearer`.")
    ] = None
    signature_secret: Annotated[
        Secret | None,
        Meta(description="Key of the HMAC-SHA256 that signs the body of a request."),
    ] = None
    signature_header: Annotated[
        str, Meta(description="Header of that signature, `sha256=<hex>`.")
    ] = "X-Hub-Signature-256"
    insecure: Annotated[
        bool, Meta(description="Allow a public address without token or signature.")
    ] = False
    forward_headers: Annotated[
        list[str], Meta(description="Request headers that become headers of the record.")
    ] = []
    key: Annotated[
        str | None, Meta(description="Field of the JSON body that becomes the record's key.")
    ] = None
    body_bytes_max: Annotated[int, Meta(ge=1, description="Maximum size of a body.")] = 1024 * 1024
    buffer_bytes_max: Annotated[
        int,
        Meta(ge=1024, description="Maximum size of the spool; when it is full, the answer is 503."),
    ] = 1024 * 1024 * 1024
    connections_max: Annotated[int, Meta(ge=1, description="Maximum number of connections.")] = 256
    certificate_path: Annotated[str | None, Meta(description="PEM certificate for TLS.")] = None
    key_path: Annotated[str | None, Meta(description="PEM key of the certificate.")] = None


class WebhookSinkConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Receiver, concurrency and retries of sent requests."""

    url: Annotated[str, Meta(pattern="^https?://", description="URL of the receiver.")]
    method: Annotated[Literal["POST", "PUT", "PATCH"], Meta(description="HTTP method.")] = "POST"
    token: Annotated[Secret | None, Meta(description="Sent as `Authorization: Bearer`.")] = None
    headers: Annotated[dict[str, Secret], Meta(description="Additional headers.")] = {}
    content_type: Annotated[str, Meta(description="Content type of the values.")] = (
        "application/json"
    )
    forward_headers: Annotated[
        bool, Meta(description="Send headers of the record as `X-Mainstem-Header-*`.")
    ] = False
    concurrency: Annotated[
        int,
        Meta(ge=1, le=256, description="Concurrent requests; records of one key stay in order."),
    ] = 8
    timeout_ms: Annotated[int, Meta(ge=1, description="Timeout of a request.")] = 30_000
    retries: Annotated[int, Meta(ge=0, le=100, description="Retries of a request.")] = 5
    initial_backoff_ms: Annotated[
        int, Meta(ge=1, description="Backoff before the first retry.")
    ] = 200
    max_backoff_ms: Annotated[int, Meta(ge=1, description="Maximum backoff.")] = 30_000


class WebhookSource:
    """Receives requests."""

    def spec(self) -> Spec:
        """The metadata of this source."""
        return Spec(
            name="http-webhook",
            kind="source",
            title="Received HTTP requests",
            category=Category.HTTP,
            config=WebhookSourceConfig,
            extra="webhook",
            modules=("starlette", "uvicorn"),
        )

    def check(self, config: WebhookSourceConfig) -> list[Finding]:
        """Whether the port is free and requests are authenticated."""
        protected = config.token is not None or config.signature_secret is not None
        if not (protected or config.insecure or _is_loopback(config.host)):
            return [
                failed(
                    f"{config.host} accepts records without authentication",
                    "set token or signature_secret, or insecure: true",
                )
            ]
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        try:
            socket.create_server((config.host, config.port), family=family).close()
        except OSError as error:
            text = f"cannot listen on {config.host}:{config.port}: {error.strerror or error}"
            return [failed(text, "choose another port or address", retriable=True)]
        return [passed(f"can listen on {config.host}:{config.port}")]

    def discover(self, config: WebhookSourceConfig) -> list[Discovered]:
        """The path of the webhook."""
        return [Discovered(name=config.path, config={"path": config.path})]

    def read(
        self, spark: "SparkSession", config: WebhookSourceConfig, context: ConnectorContext
    ) -> "DataFrame":
        """Bodies as values, forwarded headers as headers, the time of the request as timestamp."""
        self.spec().require()
        from mainstem.pipelines.connector.wire import key_of_value
        from mainstem.pipelines.spark.settings_source import load
        from mainstem.pipelines.webhook.listener import ListenerSettings
        from mainstem.pipelines.webhook.source import (
            WebhookDataSource,
            WebhookSourceOptions,
        )

        names = [name for name in ListenerSettings.__struct_fields__ if name != "forward_headers"]
        settings = ListenerSettings(
            **{name: getattr(config, name) for name in names},
            forward_headers=tuple(config.forward_headers),
        )
        options = WebhookSourceOptions(
            listener=settings,
            state_dir=str(context.state_dir.resolve()),
            buffer_bytes_max=config.buffer_bytes_max,
            rows_per_batch_max=context.rows_per_batch_max,
        )
        frame = load(spark, WebhookDataSource, options, streaming=context.streaming)
        if config.key is None:
            return frame
        return frame.select(key_of_value(config.key), *frame.columns)


class WebhookSink:
    """Sends requests."""

    def spec(self) -> Spec:
        """The metadata of this sink."""
        return Spec(
            name="http-webhook",
            kind="sink",
            title="Sent HTTP requests",
            category=Category.HTTP,
            config=WebhookSinkConfig,
            delivery=DeliveryGuarantee.AT_LEAST_ONCE,
            extra="webhook",
            modules=("httpx",),
            notes="Exactly once for receivers that store Idempotency-Key.",
        )

    def check(self, config: WebhookSinkConfig) -> list[Finding]:
        """Whether the receiver answers; no record is sent."""
        import httpx

        try:
            answer = httpx.options(config.url, headers=_headers(config), timeout=CHECK_TIMEOUT_S)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            text = f"{config.url} does not answer: {type(error).__name__} {error}".strip()
            return [failed(text, "check url, and that the receiver runs", retriable=True)]
        if answer.status_code in {401, 403}:
            text = f"{config.url} refuses authentication: HTTP {answer.status_code}"
            return [failed(text, "check token and headers")]
        return [passed(f"{config.url} answers")]

    def write(
        self, frame: "DataFrame", config: WebhookSinkConfig, context: ConnectorContext
    ) -> "DataStreamWriter":
        """A writer that sends batch by batch."""
        self.spec().require()
        settings = sender_settings(config)
        return written_by(
            frame,
            lambda batch, identity: deliver(
                batch, f"{context.pipeline}-{identity}", settings, context
            ),
        )


def deliver(
    batch: "DataFrame", prefix: str, settings: "SenderSettings", context: ConnectorContext
) -> None:
    """Send a batch; records that are permanently refused become dead letters."""
    from mainstem.pipelines.connector.wire import WIRE_TYPES, as_wire
    from mainstem.pipelines.database_tables.rows import refuse
    from mainstem.pipelines.webhook.sender import send_all

    wire = as_wire(batch)
    refused = asyncio.run(send_all(_outgoing(wire, prefix), settings))
    if refused:
        rows = [(*(each.row[name] for name in WIRE_TYPES), each.error) for each in refused]
        kinds = ", ".join(f"{name} {kind}" for name, kind in WIRE_TYPES.items())
        refuse(batch.sparkSession.createDataFrame(rows, f"{kinds}, error string"), context)


def _outgoing(wire: "DataFrame", prefix: str) -> Iterator["Outgoing"]:
    from mainstem.pipelines.database_tables.rows import arrow_pieces
    from mainstem.pipelines.webhook.sender import Outgoing

    rows = (row for piece in arrow_pieces(wire) for row in piece.to_pylist())
    for number, row in enumerate(rows):
        yield Outgoing(f"{prefix}-{number}", row)


def sender_settings(config: WebhookSinkConfig) -> "SenderSettings":
    """The settings of the sender."""
    from mainstem.pipelines.webhook.sender import SenderSettings

    given: dict[str, Any] = {
        name: getattr(config, name)
        for name in SenderSettings.__struct_fields__
        if name != "headers"
    }
    return SenderSettings(**given, headers=_headers(config))


def _headers(config: WebhookSinkConfig) -> dict[str, str]:
    login = {} if config.token is None else {"Authorization": f"Bearer {config.token}"}
    return login | config.headers


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


SOURCE = WebhookSource()
SINK = WebhookSink()
