"""Metrics of clients (KIP-714): GetTelemetrySubscriptions, PushTelemetry.

As in Kafka no right is required: the operator configures which metrics clients send, and only
these are kept.
"""

from mainstem.broker.api.client_metrics import MetricsClient, TelemetryPush
from mainstem.model.errors import MainstemError
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code
from mainstem.wire.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from mainstem.wire.kafka.messages.push_telemetry import (
    PushTelemetryRequest,
    PushTelemetryResponse,
)


def get_telemetry_subscriptions(
    call: Call, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Return the metrics that a client should send."""
    try:
        asked = call.broker.client_metrics.subscription(
            bytes(request.client_instance_id), _client(call)
        )
    except MainstemError as error:
        return GetTelemetrySubscriptionsResponse(error_code=kafka_code(error))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=asked.instance,
        subscription_id=asked.id,
        accepted_compression_types=list(asked.codecs),
        push_interval_ms=asked.interval_ms,
        telemetry_max_bytes=asked.push_bytes_max,
        delta_temporality=True,
        requested_metrics=list(asked.metrics),
    )


def push_telemetry(call: Call, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Accept metrics of a client."""
    push = TelemetryPush(
        instance=bytes(request.client_instance_id),
        subscription_id=request.subscription_id,
        terminating=request.terminating,
        codec=request.compression_type,
        data=bytes(request.metrics),
    )
    try:
        call.broker.client_metrics.push(push, _client(call))
    except MainstemError as error:
        return PushTelemetryResponse(error_code=kafka_code(error))
    return PushTelemetryResponse()


def _client(call: Call) -> MetricsClient:
    # ApiVersions stored name and version as one text; the name has no blanks.
    name, _, version = call.peer.software.partition(" ")
    return MetricsClient(
        client_id=call.client_id,
        software_name=name,
        software_version=version,
        address=call.peer.address,
        port=call.peer.port,
        user=str(call.peer.identity.principal),
    )


SERVED = {
    71: ApiHandler(get_telemetry_subscriptions, 0, 0),
    72: ApiHandler(push_telemetry, 0, 0),
}
