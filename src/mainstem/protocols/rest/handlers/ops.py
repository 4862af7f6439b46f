"""Endpoints for operators and tools: description of the node, health, metrics."""

import asyncio
from datetime import UTC, datetime
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from mainstem.protocols.rest.access import may
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.responses import json_answer
from mainstem.protocols.rest.schemas.topics_and_groups import BrokerAnswer, Probe
from mainstem.security.authorisation.acl import CLUSTER_NAME, Operation, ResourceType
from mainstem.telemetry.exposition import CONTENT_TYPE, json_summary, prometheus_text
from mainstem.telemetry.health import health_json

_PUBLIC_FIELDS = ("is_healthy", "status", "live", "ready", "timestamp")
_INDEX = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Mainstem</title>
<h1>Mainstem {version}</h1>
<p>Node {node} of cluster {cluster}. Kafka clients connect to <code>{kafka}</code>.</p>
<ul>{links}</ul></html>
"""


async def get_index(site: HandlerContext, request: Request) -> Response:
    """GET /: a page of links."""
    facts = site.facts()
    paths = (
        "/v1/broker",
        "/v1/topics",
        "/v1/groups",
        "/health",
        "/metrics",
        "/metrics/json",
        "/openapi.json",
    )
    return HTMLResponse(
        _INDEX.format(
            version=escape(facts.version),
            node=site.broker.node.id,
            cluster=escape(site.broker.topics.cluster_id()),
            kafka=escape(f"{facts.kafka_host}:{facts.kafka_port}"),
            links="".join(f'<li><a href="{path}">{path}</a></li>' for path in paths),
        )
    )


async def get_broker(site: HandlerContext, request: Request) -> Response:
    """GET /v1/broker."""
    facts = site.facts()
    return json_answer(
        BrokerAnswer(
            version=facts.version,
            broker_id=site.broker.node.id,
            uptime_seconds=round(site.telemetry.figures.uptime_seconds(), 3),
            port=facts.kafka_port,
            http_port=facts.http_port,
            io_threads=facts.storage_threads,
            platform=facts.platform,
            log_dir=facts.data_dir,
            segment_size=facts.segment_bytes,
            cluster_id=site.broker.topics.cluster_id(),
            host=facts.kafka_host,
            http_host=facts.http_host,
        )
    )


async def get_health(site: HandlerContext, request: Request) -> Response:
    """GET /health: 200 when nothing needs an operator, 503 otherwise."""
    telemetry = site.telemetry
    health = telemetry.health()
    now = datetime.fromtimestamp(site.clock.wall_ms() / 1000, UTC)
    timestamp = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    body = health_json(health, telemetry.metrics, telemetry.figures.brief(), timestamp=timestamp)
    if not may(request, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        body = {name: body[name] for name in _PUBLIC_FIELDS}
    return json_answer(body, 200 if health.healthy else 503)


async def get_live(site: HandlerContext, request: Request) -> Response:
    """GET /health/live: 503 if the process should be restarted."""
    health = site.telemetry.health()
    return json_answer(Probe(health.status), 200 if health.live else 503)


async def get_ready(site: HandlerContext, request: Request) -> Response:
    """GET /health/ready: 503 if clients should use another node for now."""
    health = site.telemetry.health()
    return json_answer(Probe(health.status), 200 if health.ready else 503)


async def get_metrics(site: HandlerContext, request: Request) -> Response:
    """GET /metrics, for Prometheus; JSON for clients that accept only that."""
    telemetry = site.telemetry
    sample = await telemetry.figures.full()
    if request.headers.get("accept", "").strip().lower() == "application/json":
        return json_answer(json_summary(telemetry.metrics, sample))
    # In a thread: importing the library and formatting thousands of series take a while.
    text = await asyncio.to_thread(prometheus_text, telemetry.metrics, sample, telemetry.api_name)
    return Response(text, headers={"content-type": CONTENT_TYPE})


async def get_metrics_json(site: HandlerContext, request: Request) -> Response:
    """GET /metrics/json."""
    telemetry = site.telemetry
    return json_answer(json_summary(telemetry.metrics, await telemetry.figures.full()))
